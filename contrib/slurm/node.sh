# The places of a job on a compute node, for prolog and epilog.

job=${SLURM_JOB_ID:?}
# Tasks see this: `mnt`, the job's directory; `job`, the part of this node; `key`, the job's key.
run_root=/run/cudele-slurm
run=$run_root/$job
# This outlives a restart of the node: the record, the key, and journals of decoupled subtrees.
state=/var/lib/cudele-slurm/node/$job
export CUDELE_STATE="$state"
mkdir -p -m 711 "$run_root"
umask 077

# Sets one variable for each line of the record. burst_buffer.lua wrote the record, from values of
# few characters.
read_record() {
    while IFS='=' read -r name value; do
        case $name in
        uid | path | policy | decoupled | nodes | on_failure) eval "$name=\$value" ;;
        esac
    done <"$state/job"
}
