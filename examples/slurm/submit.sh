#!/bin/bash
# One audit on many nodes: ./submit.sh CONFIG.py PARTS
# All nodes see this folder, the config and its models. The report ends in the folder that the config names.
set -eu
here=$(dirname "$0")
mkdir -p stores parts
job=$(sbatch --parsable --array="1-$2" "$here/part.sh" "$1")
sbatch --dependency="afterok:$job" "$here/join.sh" "$1" "$2"
