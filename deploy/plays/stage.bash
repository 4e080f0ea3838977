# What every play of deploy/quickstart stands on: words, processes, ports, the build, and columns side by side. Sourced.
# shellcheck shell=bash disable=SC2034,SC2154 # variables that quickstart and the plays share

# --- words -----------------------------------------------------------------------------------------------------------

bold='' dim='' green='' red='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
    bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
fi
terminal_width() { # leaves it in $width; 110 where there is no terminal
    width=110
    [[ -t 1 ]] || return 0
    { read -r _ width < <(stty size </dev/tty); } 2>/dev/null && ((width > 0)) || width=80
}
say() { printf '%s\n' "$*"; }
step() { printf '%s==>%s %s\n' "$bold" "$plain" "$*"; }
fail() {
    printf '%sIt did not work:%s %s\n' "$red" "$plain" "$1" >&2
    shift
    (($# == 0)) || printf '%s\n' "$@" | grep -v '^$' >&2
    exit 1
}

# --- processes: each in a group of its own, so that Ctrl-C reaches this script alone and it stops them in order ------

work='' started=() waiting=''

start() { # LOG COMMAND...: leaves the process id in $pid
    local log=$1
    shift
    : >"$log"
    setsid "$@" </dev/null >"$log" 2>&1 &
    pid=$!
    started+=("$pid")
}

stop() { # PID: asks it and its group, waits three seconds, insists
    local tries=0
    kill -TERM -- "-$1" 2>/dev/null || kill -TERM "$1" 2>/dev/null || return 0
    while kill -0 "$1" 2>/dev/null && ((tries++ < 60)); do sleep 0.05; done
    { kill -KILL -- "-$1" && wait "$1"; } 2>/dev/null || true # with the wait, the shell says nothing of it
}

clean() {
    local status=$? index
    trap '' INT TERM
    for ((index = ${#started[@]} - 1; index >= 0; index--)); do stop "${started[index]}"; done
    [[ -z $work ]] || rm -rf "$work"
    [[ -z $waiting ]] || say "Stopped all of it."
    exit "$status"
}
trap clean EXIT
trap 'if [[ -n $waiting ]]; then echo; exit 0; else exit 130; fi' INT
trap 'exit 143' TERM

# --- ports: looked up among the listening sockets, never by connecting -----------------------------------------------

sockets() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; }

taken() { # PORT
    local hex
    printf -v hex ':%04X' "$1"
    sockets | awk -v end="$hex\$" '$2 ~ end { found = 1 } END { exit !found }'
}

listens() { # PID PORT: whether this very process listens there
    local hex inode descriptor
    printf -v hex ':%04X' "$2"
    for inode in $(sockets | awk -v end="$hex\$" '$2 ~ end && $4 == "0A" { print $10 }'); do
        for descriptor in "/proc/$1/fd/"*; do
            [[ $(readlink "$descriptor" 2>/dev/null) != "socket:[$inode]" ]] || return 0
        done
    done
    return 1
}

free_port() { # below the range from which the system takes ports for outgoing connections
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        port=$((20000 + RANDOM % 12000))
        taken "$port" || return 0
    done
    fail "no free port was found between 20000 and 32000."
}

# NAME LOG FUNCTION: starts FUNCTION (which reads $port and calls start) until it listens; another program may have
# taken the port meanwhile, so a few ports are tried.
listening() {
    local name=$1 log=$2 attempt tries
    for attempt in 1 2 3 4 5; do
        if [[ -n ${fixed_port:-} ]]; then port=$fixed_port; else free_port; fi
        "$3"
        for ((tries = 0; tries < 200; tries++)); do
            ! listens "$pid" "$port" || return 0
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
        kill -0 "$pid" 2>/dev/null && break
        [[ -z ${fixed_port:-} ]] || break
    done
    fail "$name did not start. It says:" "$([[ -s $log ]] && tail -n 8 "$log" | sed 's/^/    /' || echo '    (nothing)')"
}

# --- what is missing -------------------------------------------------------------------------------------------------

install_missing() {
    local packages=("$@")
    ((${#packages[@]})) || return 0
    [[ -n $(command -v apt-get) && -n $(command -v dpkg-query) ]] ||
        fail "these are missing: ${packages[*]}." \
            "The names are those of Debian; install what your system calls them, and start this again."
    "$here/install-packages" "${packages[@]}" ||
        fail "could not install ${packages[*]}." "See the messages above; then start this again."
}

install_build_tools() {
    local name missing=()
    if command -v dpkg-query >/dev/null; then
        for name in binutils ca-certificates git libc6-dev libcurl4 libgcc-12-dev libjemalloc-dev libncurses6 libpq-dev \
            libqrencode-dev libsodium-dev libsqlite3-dev libssl-dev libstdc++-12-dev libxml2 pkg-config zlib1g-dev; do
            dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
        done
    fi
    install_missing ${missing[@]+"${missing[@]}"}
    command -v swift >/dev/null ||
        fail "there is no swift in PATH." \
            "Install Swift 6.3 for Debian 12 (swift.org/install), or name a built pawl with PAWL_BIN=FILE."
    local version
    version=$(swift --version 2>/dev/null | sed -n 's/.*Swift version \([0-9]*\.[0-9]*\).*/\1/p' | head -1)
    [[ -n $version ]] || fail "swift does not run:" "$(swift --version 2>&1 | tail -n 4 | sed 's/^/    /')"
    [[ $(printf '%s\n' 6.2 "$version" | sort -V | head -1) == 6.2 ]] ||
        fail "the swift in PATH is $version, and Pawl needs 6.3." "Put Swift 6.3 first in PATH."
}

# --- the build -------------------------------------------------------------------------------------------------------

build() {
    [[ -e $root/Package.swift ]] ||
        fail "there is no pawl in PATH, and no sources of it are here." "Install the package, or name a pawl with PAWL_BIN=FILE."
    local mark=.build/quickstart.built log=.build/quickstart.log line from=$SECONDS width code=0
    pawl=$root/.build/release/pawl
    local sources=(Package.swift Package.resolved Sources)
    if [[ $chat == app ]]; then
        pawl=$root/.build/release/ChatClient mark=.build/quickstart.app.built
        sources+=(deploy/plays/ChatClient Tests/ChatBackend)
    fi
    cd "$root" || exit
    if [[ -x $pawl && -e $mark ]] &&
        [[ -z $(find "${sources[@]}" -newer "$mark" -print -quit) ]]; then
        return 0
    fi
    install_build_tools
    if [[ -x $pawl ]]; then
        step "building the release binary anew: its sources have changed"
    else
        step "building the release binary; the first time takes some ten minutes on two cores"
    fi
    mkdir -p .build
    touch "$mark.new"
    # One call builds one product.
    start "$log" bash -c 'for name in "$@"; do
        swift build -c release --product "$name" -debug-info-format none || exit
    done' build "${products[@]}"
    local build_pid=$pid
    if [[ -t 1 ]]; then
        terminal_width
        width=$((width > 20 ? width - 9 : 11))
        while kill -0 "$build_pid" 2>/dev/null; do
            line=$(tail -c 4000 "$log" | tr '\r' '\n' | grep -av '^ *$' | tail -n 1 || true)
            printf '\r\e[K%3d:%02d  %s' $(((SECONDS - from) / 60)) $(((SECONDS - from) % 60)) "${line:0:width}"
            sleep 0.3
        done
        printf '\r\e[K'
    else
        tail -n +1 -s 0.3 -f --pid="$build_pid" "$log" &
        wait $! || true
    fi
    wait "$build_pid" || code=$?
    unset 'started[-1]'
    ((code == 0)) ||
        fail "the build failed. Its last lines, of all in $log:" "$(grep -av '^\[' "$log" | tail -n 15 | sed 's/^/    /')" \
            "Without a network the first build cannot fetch what it needs; otherwise see what the lines say."
    mv "$mark.new" "$mark"
    say "    built in $((SECONDS - from)) seconds"
}

# --- what every play starts ------------------------------------------------------------------------------------------

run_tap() { # every byte that goes to $tap_to is in $tap-sent, and every byte that comes from there in $tap-received
    : >"$work/$tap-sent" && : >"$work/$tap-received"
    start "$work/$tap-tap.log" socat -r "$work/$tap-sent" -R "$work/$tap-received" \
        "TCP4-LISTEN:$port,bind=127.0.0.1,fork" "$tap_to"
}

parse_backend() { # PLAIN-SCHEME PORT TLS-SCHEME PORT WHAT
    [[ $backend =~ ^($1|$3)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:([0-9]{1,5}))?/?$ ]] ||
        fail "$backend is no URL of $5." "Write it as $1://HOST:PORT, or $3://HOST:PORT for TLS."
    local scheme=${BASH_REMATCH[1]} host=${BASH_REMATCH[2]} number=${BASH_REMATCH[4]}
    backend=${backend%/} tls_scheme=$3
    if [[ $scheme == "$1" ]]; then
        backend_address=TCP:$host:${number:-$2}
    else
        backend_address=OPENSSL:$host:${number:-$4},verify=1
        [[ $host == \[* || $host =~ ^[0-9.]+$ ]] || backend_address+=,snihost=$host
    fi
    backend_address+=,connect-timeout=10
}

check_backend() {
    local words
    words=$(timeout 15 socat -u OPEN:/dev/null "$backend_address" 2>&1) ||
        fail "your server $backend cannot be reached${words:+:}" "${words:+    ${words##* E }}" \
            "Check host, port and firewall, and that it is running; for a server with TLS write $tls_scheme://."
}

# --- the play --------------------------------------------------------------------------------------------------------

# A play has script (FROM|TO|PROTECTION|TEXT), and of the entry FROM TO PROTECTION TEXT these say, as functions:
#   cast              who sees it, in $who, and what its scene is called, in $title
#   new_scene         what happens before the first entry of a scene
#   say_it            writes it, with its writer's client
#   look_all          what all in $who saw of it, into $views; whether everybody saw something
#   look_at_backend   what the backend has of it, into $captured
#   check_entry       adds to $problems what is not as it should be

declare -A nicks ports

wait_for() { # FILE EXPRESSION: until a line of FILE matches, for as long as $patience says
    local until=$((SECONDS + patience))
    until grep -aqE -- "$2" "$1" 2>/dev/null; do
        ((SECONDS < until)) || return 1
        sleep 0.05
    done
}

bytes() { stat -c %s "$1"; }

columns() { # COLOUR BACKEND-COLOUR CELL... : side by side, wrapped; the last cell is the backend's
    local colours=("$1" "$2") rows=0 row cell index last=$(($# - 3)) texts=() lines
    shift 2
    for ((index = 0; index <= last; index++)); do
        if ((index < last)); then
            mapfile -t lines < <([[ -z $1 ]] || fold -s -w "$people_width" <<<"$1")
        else
            mapfile -t lines < <([[ -z $1 ]] || fold -w "$backend_width" <<<"$1")
        fi
        shift
        ((${#lines[@]} <= rows)) || rows=${#lines[@]}
        for ((row = 0; row < ${#lines[@]}; row++)); do texts[row * (last + 1) + index]=${lines[row]}; done
    done
    for ((row = 0; row < rows; row++)); do
        for ((index = 0; index < last; index++)); do
            cell=${texts[row * (last + 1) + index]:-}
            printf '%s%-*s%s %s│%s ' "${colours[0]}" "$people_width" "$cell" "$plain" "$dim" "$plain"
        done
        printf '%s%s%s\n' "${colours[1]}" "${texts[row * (last + 1) + last]:-}" "$plain"
    done
}

rule() {
    local people backend line='' person
    printf -v people '%*s' "$((people_width + 1))" ''
    printf -v backend '%*s' "$backend_width" ''
    for person in "${who[@]}"; do line+=${people// /─}┼─; done
    printf '%s%s%s%s\n' "$dim" "$line" "${backend// /─}" "$plain"
}

heading() { # of a section: who talks, what that is called, and the columns
    local width names=() person
    terminal_width
    ((width <= 150)) || width=150
    people_width=$((width < 90 ? 20 : 26))
    ((${#who[@]} == 2)) || people_width=$((width < 90 ? 15 : 20))
    backend_width=$((width - ${#who[@]} * (people_width + 3)))
    ((backend_width >= 20)) || backend_width=20
    for person in "${who[@]}"; do names+=("${nicks[$person]} SAW"); done
    say
    say "$bold$1$plain"
    say
    columns "$bold" "$bold" "${names[@]}" "$backend_heading"
    rule
}

play() { # shows the conversations until something is not as it should be, which is in $problems then
    local entry from to protection text title section='' until who views captured
    problems=()
    for entry in "${script[@]}"; do
        IFS='|' read -r from to protection text <<<"$entry"
        cast
        if [[ $title != "$section" ]]; then
            new_scene
            heading "$title"
        fi
        section=$title
        say_it
        until=$((SECONDS + patience))
        until look_all || ((SECONDS >= until)); do sleep 0.05; done
        look_at_backend
        columns '' "$dim" "${views[@]}" "$captured"
        rule
        check_entry
        ((${#problems[@]} == 0)) || return 0
    done
}

found() { # PROTECTION FILE...: into $found which three words in a row, of what was said under PROTECTION, FILES hold
    local protection=$1 entry words index phrase
    shift
    found=()
    for entry in "${script[@]}"; do
        [[ $entry == *"|$protection|"* ]] || continue
        read -ra words <<<"${entry##*|}"
        for ((index = 0; index + 3 <= ${#words[@]}; index++)); do
            phrase="${words[*]:index:3}"
            ! grep -raqiF -- "$phrase" "$@" || found+=("$phrase")
        done
    done
}

show() { # FILE SED: new lines of FILE as SED shows them
    # shellcheck disable=SC2016 # for the inner shell
    setsid bash -c 'tail -n 0 -f --pid="$1" "$2" | sed -un "$3"' show "$$" "$1" "$2" </dev/null 2>/dev/null &
    started+=("$!")
}

search() { # WHAT PROTECTION FILE...: adds to $problems what FILES hold of what was said under PROTECTION
    local what=$1 found
    shift
    found "$@"
    problems+=("${found[@]/#/$what: }")
}
