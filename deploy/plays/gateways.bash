# The play of --gateways: that of IRC behind HAProxy and several gateways on one PostgreSQL, one of which is killed.
# Sourced by deploy/quickstart after irc.bash, of which it replaces what stands below.
# shellcheck shell=bash disable=SC2034,SC2154 # variables that quickstart, the stage and the plays share
# shellcheck disable=SC2004 # nicks and ports have names for indices

install_tools() {
    local name missing=()
    for name in ngircd ii socat haproxy; do command -v "$name" >/dev/null || missing+=("$name"); done
    find_postgres || missing+=(postgresql)
    install_missing ${missing[@]+"${missing[@]}"}
    find_postgres || fail "the programs of PostgreSQL were not found." "Install PostgreSQL 14 or later."
}

find_postgres() { # leaves the directory of its newest programs in $postgres
    local found
    for found in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV) /usr/bin /usr/local/bin; do
        [[ ! -x $found/initdb ]] || { postgres=$found; return 0; }
    done
    return 1
}

# --- what runs -------------------------------------------------------------------------------------------------------

as_nobody=() # before the programs of PostgreSQL, which refuse to run as root

make_database() {
    mkdir "$work/database"
    if ((EUID == 0)); then
        as_nobody=(setpriv --reuid nobody --regid nogroup --clear-groups)
        chown nobody:nogroup "$work/database"
        chmod 711 "$work" # it passes through; the directories in it are closed
    fi
    (cd / && "${as_nobody[@]}" "$postgres/initdb" -D "$work/database/data" -U pawl -A trust -E UTF8 --no-locale -N) \
        >"$work/initdb.log" 2>&1 || fail "PostgreSQL could not make a database:" "$(tail -n 5 "$work/initdb.log" | sed 's/^/    /')"
}

run_postgres() {
    start "$work/postgres.log" "${as_nobody[@]}" "$postgres/postgres" -D "$work/database/data" -p "$port" \
        -c listen_addresses=127.0.0.1 -c "unix_socket_directories=$work/database" -c max_connections=60
}

database_answers() {
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        ! "$postgres/pg_isready" -q -h 127.0.0.1 -p "$1" || return 0
        sleep 0.05
    done
    fail "PostgreSQL does not answer. It says:" "$(tail -n 8 "$work/postgres.log" | sed 's/^/    /')"
}

run_gateway() { # of $gateway; $port is that of /ready
    start "$work/$gateway.log" env PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND=0 PAWL_ACCEPT_PROXY_PROTOCOL=true \
        PAWL_STORE_URL="$database_url" PAWL_STORAGE_KEY_FILE="$work/key/storage.key" \
        PAWL_STORE_GATEWAY="$gateway" "$pawl" serve --policy hosted \
        --listen "irc://127.0.0.1:${ports[$gateway]}" --upstream "irc://127.0.0.1:$backend_port" \
        --metrics "127.0.0.1:$port" --data "$work/data-$gateway"
    pids[$gateway]=$pid
}

start_gateway() { # NAME: the first time on free ports, later on the same
    gateway=$1
    fixed_port=${checks[$gateway]:-}
    [[ -n ${ports[$gateway]:-} ]] || { free_port && ports[$gateway]=$port; }
    listening "$gateway" "$work/$gateway.log" run_gateway
    checks[$gateway]=$port fixed_port=''
}

declare -A checks pids

ready() { # NAME: whether its /ready answers 200, as a load balancer asks
    local line=''
    [[ -n ${checks[$1]:-} ]] || return 1
    { exec {answer}<>"/dev/tcp/127.0.0.1/${checks[$1]}"; } 2>/dev/null || return 1
    printf 'GET /ready HTTP/1.1\r\nHost: pawl\r\n\r\n' >&"$answer"
    read -r -t 5 line <&"$answer" || true
    exec {answer}>&-
    [[ $line == *" 200 "* ]]
}

find_serving() { # waits until a gateway serves, whose name is then in $serving
    local until=$((SECONDS + patience)) name
    while :; do
        for name in "${gateways[@]}"; do ! ready "$name" || { serving=$name; return 0; }; done
        ((SECONDS < until)) || fail "no gateway serves." "$(logs 6)"
        sleep 0.05
    done
}

run_haproxy() { # config/haproxy-gateways.cfg has the same for gateways on other machines
    local name
    cat >"$work/haproxy.cfg" <<END_OF_FILE
defaults
    mode tcp
    timeout connect 3s
    timeout check 1s
    timeout client 1h
    timeout server 1h
    retries 4
    option redispatch 1
listen irc
    bind 127.0.0.1:$port
    option httpchk GET /ready
    http-check expect status 200
    default-server inter 1s fastinter 250ms downinter 250ms fall 2 rise 1 send-proxy-v2
END_OF_FILE
    for name in "${gateways[@]}"; do
        printf '    server %s 127.0.0.1:%s check port %s\n' "$name" "${ports[$name]}" "${checks[$name]}"
    done >>"$work/haproxy.cfg"
    start "$work/haproxy.log" haproxy -db -f "$work/haproxy.cfg"
}

logs() { # COUNT: the last lines of all
    local file
    for file in "$work"/gateway-?.log "$work"/*-sidecar.log "$work/haproxy.log" "$work/postgres.log"; do
        [[ ! -e $file ]] || tail -n "$1" "$file" | sed "s|^|    $(basename "$file" .log): |"
    done
}

show_gateways() {
    say
    step "pawl gateways, $1"
    "$pawl" gateways --data "$work/data-$serving" | sed 's/^\(.\)/    \1/'
}

# --- people ----------------------------------------------------------------------------------------------------------

connect() { # NAME: its client connects through HAProxy until a gateway takes it, as clients do that reconnect
    local name=$1 until=$((SECONDS + patience)) tries
    while ((SECONDS < until)); do
        start "$work/$name.log" ii -s 127.0.0.1 -p "${ports[$name]}" -n "$name" -f "$name" -i "$work/$name"
        people[$name]=$pid
        for ((tries = 0; tries < 200; tries++)); do
            ! grep -aqE '^[0-9]+ :[^ ]+ 001 ' "$work/$name.log" || { nicks[$name]=$name; return 0; }
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
        stop "$pid"
        unset 'started[-1]'
        sleep 0.1
    done
    fail "$name could not connect." "$(tail -n 6 "$work/$name.log" | sed 's/^/    /')" "$(logs 4)"
}

declare -A people

connect_again() { # NAME: after its connection has ended, which its client notices
    local name=$1 until=$((SECONDS + patience)) index
    while kill -0 "${people[$name]}" 2>/dev/null; do
        ((SECONDS < until)) || fail "the connection of $name did not end with its gateway." "$(logs 4)"
        sleep 0.05
    done
    for index in "${!started[@]}"; do
        [[ ${started[index]} != "${people[$name]}" ]] || unset "started[$index]"
    done
    started=("${started[@]}")
    connect "$name"
}

# FROM|TO|PROTECTION|TEXT, in three parts: before the kill, after it, after the drain.
before=(
    "alice|bob|gateway|Hi bob, did the clinic call you back?"
    "bob|alice|gateway|They did: all my results are fine. What a relief!"
    "bob|carol|e2e|Carol, only for you: I resign on Monday."
    "carol|bob|e2e|I keep it to myself. Do they know why?"
)
after_kill=(
    "alice|bob|gateway|My chat was away for a moment. What did the clinic say about the vaccine?"
    "bob|alice|gateway|Nothing about that, so we ask them tomorrow."
    "carol|bob|e2e|And who takes over your team on Tuesday?"
)
after_drain=(
    "alice|bob|gateway|One more short break, they told us before this time."
    "bob|alice|gateway|I have not noticed any break over here."
    "bob|carol|e2e|Nobody is named yet, keep your ears open."
)
backend_heading="THE BACKEND SAW" conversations="people talk through HAProxy"

new_scene() { :; }

# --- a conversation while a gateway goes ------------------------------------------------------------------------------

numbered=0 # lines of this conversation so far
again=0    # of those, written again because the server had told that the reader was not there yet
total_twice=0 problems=()

now() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }

seen_lines() { # numbers that bob and carol have of each other's lines, in the order of their windows
    local reader writer
    for reader in bob carol; do
        [[ $reader == bob ]] && writer=carol || writer=bob
        sed -n "s/^[0-9]* <$writer> \[e2e\] line number \([0-9]*\)\$/\1/p" "$work/$reader/127.0.0.1/$writer/out" 2>/dev/null
    done
}

# bob and carol answer each other's lines, ten of them. Right after the fifth is written, which is under way then, $1 is
# done. Leaves in $silence how long it took until that line was seen, in ms.
traffic() {
    local until count=0 reader writer from moment
    silence=0
    while ((count++ < 10)); do
        numbered=$((numbered + 1))
        ((numbered % 2)) && { writer=bob reader=carol; } || { writer=carol reader=bob; }
        from=$(bytes "$work/$writer.log")
        printf 'line number %d\n' "$numbered" >"$work/$writer/127.0.0.1/$reader/in"
        if ((count == 5)); then
            "$1"
            moment=$(now)
        fi
        until=$((SECONDS + patience))
        until grep -qx "$numbered" < <(seen_lines); do
            ((SECONDS < until)) || { problems+=("$reader did not see line $numbered of $writer"); return 0; }
            # The two sidecars connect again at different moments. The server says so of who is not there yet.
            if tail -c "+$((from + 1))" "$work/$writer.log" | grep -aqE ' (401|531) '; then
                again=$((again + 1)) from=$(bytes "$work/$writer.log")
                sleep 0.5
                printf 'line number %d\n' "$numbered" >"$work/$writer/127.0.0.1/$reader/in"
            fi
            sleep 0.02
        done
        ((count != 5)) || silence=$((($(now) - moment) / 1000))
    done
    check_lines
}

check_lines() { # what bob and carol have seen; adds to $problems
    local twice
    sleep 1 # for what comes twice
    twice=$(seen_lines | sort | uniq -d | grep -c . || true)
    total_twice=$twice
    say "    ten more lines, all of them seen; so far $numbered lines, $twice of them seen twice"
    [[ $(seen_lines | sort -n | uniq) == "$(seq "$numbered")" && $twice == 0 ]] ||
        problems+=("bob and carol should see the lines 1 to $numbered once" "    and saw: $(seen_lines | tr '\n' ' ')")
    ((again == 0)) || say "    $again of them were written again: the server had answered that the reader was not there yet"
}

kill_serving() {
    killed=$serving
    kill -KILL "${pids[$killed]}"
    wait "${pids[$killed]}" 2>/dev/null || true
    forget_process "${pids[$killed]}"
}

drain_serving() {
    drained=$serving
    "$pawl" gateways drain "$drained" --data "$work/data-$killed" >"$work/drain.log" 2>&1 ||
        problems+=("pawl gateways drain $drained failed: $(tail -n 1 "$work/drain.log")")
}

ended() { # NAME: waits until the drained gateway has ended, which has to be with code 0
    local code=0
    wait "${pids[$1]}" || code=$?
    ((code == 0)) || problems+=("$1 was drained and ended with code $code")
    forget_process "${pids[$1]}"
}

forget_process() { # PID: that it has ended is as it should be
    local index
    for index in "${!started[@]}"; do [[ ${started[index]} != "$1" ]] || unset "started[$index]"; done
    started=("${started[@]}")
}

part() { # ENTRY...: plays these, as far as nothing is wrong
    ((${#problems[@]} == 0)) || return 0
    script=("$@")
    play
}

# --- the whole -------------------------------------------------------------------------------------------------------

set_stage() {
    patience=60
    room='#lunch'
    pacing=(env PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND=0) # this ngIRCd does not slow clients down
    gateways=()
    while ((${#gateways[@]} < gateway_count)); do gateways+=("gateway-$((${#gateways[@]} + 1))"); done

    make_database
    listening PostgreSQL "$work/postgres.log" run_postgres
    database_url="postgresql://pawl@127.0.0.1:$port/postgres"
    database_answers "$port"
    database_text="PostgreSQL at 127.0.0.1:$port"
    listening ngIRCd "$work/ngircd.log" run_ngircd
    backend_text="ngIRCd at 127.0.0.1:$port, unmodified"
    tap=backend tap_to=TCP4:127.0.0.1:$port
    listening "the recorder (socat)" "$work/backend-tap.log" run_tap
    backend_port=$port

    mkdir -m 700 "$work/key" # one key for all gateways; the first one makes it
    local name
    for name in "${gateways[@]}"; do
        start_gateway "$name"
        [[ $name != gateway-1 ]] || find_serving
    done
    fixed_port=$wanted_port
    listening HAProxy "$work/haproxy.log" run_haproxy
    fixed_port=''
    ports[alice]=$port
    tap=front tap_to=TCP4:127.0.0.1:$port
    listening "the recorder (socat)" "$work/front-tap.log" run_tap
    front_port=$port
    for person in bob carol; do
        listening "$person's sidecar" "$work/$person-sidecar.log" run_sidecar
        ports[$person]=$port
    done

    step "running on this machine"
    say "    alice        ii, an IRC client that knows nothing of encryption, at HAProxy"
    say "    bob, carol   ii as well, each behind a sidecar (pawl sidecar) of their own, which connects to HAProxy"
    say "    HAProxy      127.0.0.1:${ports[alice]}, asks each gateway for /ready and uses the one that is"
    for name in "${gateways[@]}"; do
        say "    $name    Pawl, policy hosted, clients at 127.0.0.1:${ports[$name]} when it serves, /ready at 127.0.0.1:${checks[$name]}"
    done
    say "    database     $database_text, for all gateways"
    say "    recorders    socat, keep every byte between gateways and backend, and between sidecars and HAProxy"
    say "    backend      $backend_text"

    for person in alice bob carol; do connect "$person"; done
    for person in bob carol; do published "$person"; done
    show_gateways "before"
}

play_gateways() {
    part "${before[@]}"
    ((${#problems[@]} == 0)) || return 0

    say
    step "kill -9 $serving, which serves, while bob and carol write to each other"
    traffic kill_serving
    local first=$serving
    find_serving
    say "    the line that was under way was seen after $silence ms. bob and carol stayed connected to their sidecars."
    [[ $serving != "$first" ]] || problems+=("$first was killed and serves")
    connect_again alice
    say "    alice's connection ended with its gateway. Her client connected again, to the same port."
    show_gateways "after the kill: $serving serves"
    part "${after_kill[@]}"
    ((${#problems[@]} == 0)) || return 0

    say
    step "$killed is started again, and stands by"
    start_gateway "$killed"
    ! ready "$killed" || problems+=("$killed is ready although $serving serves")

    say
    step "pawl gateways drain $serving, as in an upgrade, while bob and carol write to each other"
    traffic drain_serving
    find_serving
    [[ $serving != "$drained" ]] || problems+=("$drained was drained and serves")
    ended "$drained"
    say "    the line that was under way was seen after $silence ms"
    connect_again alice
    start_gateway "$drained" # with the new program, in an upgrade
    find_serving
    show_gateways "after the drain: $serving serves, and $drained was started again"
    part "${after_drain[@]}"
    script=("${before[@]}" "${after_kill[@]}" "${after_drain[@]}")
}

check_play() {
    search_captures
    ! grep -aqF "line number" "$work/backend-sent" "$work/backend-received" "$work/front-sent" "$work/front-received" ||
        problems+=("the numbered lines were in the clear on the way")
    local protection
    for protection in gateway e2e; do search "the database has" "$protection" "$work/database/data"; done
    ((${#problems[@]})) || compare_numbers
}

explain_problems() {
    say "The last lines that alice, bob and carol got from the server:"
    tail -qn 3 "$work/alice.log" "$work/bob.log" "$work/carol.log" | sed 's/^/    /'
}

conclude() {
    local all=$((${#script[@]} + numbered))
    say "${green}Everybody saw every one of $all lines, $total_twice of them twice,${plain} although the serving gateway was killed in"
    say "the middle, and the next one drained."
    say "${bold}One gateway serves at a time.${plain} The others take over; they share no load. A client's connection ends with"
    say "its gateway: alice's client connected again. Sidecars do so by themselves, and keep what was not sent yet."
    say "${bold}On a network without accounts${plain}, as this one, a line of alice that was just under way would end with her"
    say "connection: the server cannot tell that she is the same person. She waited for answers here. With accounts, and over"
    say "HTTP, the next gateway sends what the killed one had accepted (SeveralGatewaysTests, with traffic)."
    say "Among the bytes to and from the backend are no three words of what they wrote in a row."
    say
    step "pawl status, of $serving"
    "$pawl" status --data "$work/data-$serving" | sed 's/^\(.\)/    \1/'
}

invite_you() {
    say
    step "your own client, without TLS"
    say "    irssi -c 127.0.0.1 -p ${ports[alice]} -n me"
    say "    Write to somebody who is there: /msg alice hello. Kill a gateway and see who takes over, in another terminal:"
    say "        $pawl gateways --data $work/data-$serving"
    local name
    for name in "${gateways[@]}"; do say "        kill -9 ${pids[$name]}    # $name"; done
    say
}
