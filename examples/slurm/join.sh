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
own=$(mktemp -d)/whole.db kept=stores/whole.db
audit cache merge "$own" "${parts[@]}"  # every row and key is checked
restore() { if [ -L "$kept" ]; then rm "$kept"; if [ -e "$kept.before" ]; then mv "$kept.before" "$kept"; fi; fi; }
trap restore EXIT
if [ -e "$kept" ] && [ ! -L "$kept" ]; then mv "$kept" "$kept.before"; fi
ln -sfn "$own" "$kept"  # the report names the path at which the store is kept in the end
srun audit run "$1" --db "$kept"
rm -f "$kept.new"
audit cache backup "$kept.new" --db "$own" && mv "$kept.new" "$kept"
rm -rf "${own%/*}" "$kept.before"
echo "The store is kept as $kept."
