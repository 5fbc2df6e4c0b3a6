#!/bin/bash
# One part of an audit on one node; submit.sh starts it as an array.
#SBATCH --job-name=audit-part --gres=gpu:1 --time=08:00:00 --signal=TERM@300 --requeue --output=parts/%a.log
set -u
config=$1 part=$SLURM_ARRAY_TASK_ID of=$SLURM_ARRAY_TASK_COUNT code=0
own=$(mktemp -d)/audit.db || exit  # on the node's own disk: SQLite's locks do not hold over most network file systems
kept=stores/$part-of-$of.db
if [ -e "$kept" ]; then cp "$kept" "$own" || exit; fi  # a part that is started again resumes, and else keeps them
srun audit run "$config" --shard "$part/$of" --db "$own" --out "parts/$part" || code=$?
rm -f "$kept.new"
if audit cache backup "$kept.new" --db "$own" && mv "$kept.new" "$kept"; then
    rm -rf "${own%/*}"
    echo "The store is kept as $kept; the last job joins it."
else
    code=1
    echo "The store is still $own on $(hostname): copy it to $kept before the array starts again." >&2
fi
exit $code
