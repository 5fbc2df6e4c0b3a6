#!/bin/bash
# The report of all parts; submit.sh starts it when they are done. It asks nothing, but runs on a node like theirs: an
# answer belongs to a model on an engine and a kind of device, and is not found from another kind.
#SBATCH --job-name=audit-join --gres=gpu:1 --time=01:00:00 --output=parts/join.log
set -eu
parts=(stores/*-of-"$2".db)
if [ ! -e "${parts[0]}" ] || [ "${#parts[@]}" -ne "$2" ]; then  # the run would ask what is missing, all on this node
  echo "Of $2 parts there are only: ${parts[*]}. Start the missing ones again, or take them from their nodes." >&2
  exit 1
fi
own=$(mktemp -d)/whole.db
audit cache merge "$own" "${parts[@]}"  # every row and key is checked
srun audit run "$1" --db "$own"
rm -f stores/whole.new
audit cache backup stores/whole.new --db "$own" && mv stores/whole.new stores/whole.db
rm -rf "${own%/*}"
echo "The store is kept as stores/whole.db: give its path in place of $own."
