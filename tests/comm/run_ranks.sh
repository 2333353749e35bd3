#!/usr/bin/env bash
# Starts a program with N ranks under Open MPI, as the tests need it: in a container, as root, with
# more ranks than cores. usage: run_ranks.sh N PROGRAM [ARGUMENTS]
set -euo pipefail
ranks=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none  # process_vm_readv is not permitted in every container
export OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_pml=ob1  # as assay train --ranks: no search for networks
exec mpirun -n "$ranks" "$@"
