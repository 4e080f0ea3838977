# The play for Matrix: alice and bob through the gateway, carol past it. Sourced by deploy/quickstart.
# shellcheck shell=bash disable=SC2034,SC2154 # variables that quickstart, the stage and the play share
# shellcheck disable=SC2004 # nicks and ports have names for indices

take_backend() { parse_backend http 80 https 443 "a Matrix homeserver"; }

python=$root/.build-peers-matrix/bin/python # Tests/run uses the same

install_tools() {
    local missing=()
    command -v socat >/dev/null || missing+=(socat)
    command -v python3 >/dev/null || missing+=(python3)
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    install_missing ${missing[@]+"${missing[@]}"}
    "$here/install-python" "$here/plays/matrix-requirements.txt" "$root/.build-peers-matrix" "Synapse and matrix-nio" ||
        fail "could not install Synapse and matrix-nio." "See the messages above; then start this again."
}

# --- what runs -------------------------------------------------------------------------------------------------------

random() { # COUNT: so many random characters
    local characters
    characters=$(head -c 200 /dev/urandom | base64 | tr -dc 'A-Za-z0-9')
    printf '%s' "${characters:0:$1}"
}

run_synapse() {
    # All people of the play come from one address and write faster than people do, so the limits for that are higher
    # than as delivered. The client's address comes from the gateway (x_forwarded).
    mkdir -p "$work/synapse"
    printf 'ed25519 a_play %s\n' "$(head -c 32 /dev/urandom | base64 | tr -d =)" >"$work/signing.key"
    cat >"$work/log.yaml" <<END
version: 1
formatters: {plain: {format: '%(name)s %(levelname)s %(message)s'}}
handlers: {errors: {class: logging.StreamHandler, formatter: plain, stream: ext://sys.stderr}}
root: {level: WARNING, handlers: [errors]}
disable_existing_loggers: false
END
    cat >"$work/homeserver.yaml" <<END
server_name: quickstart.example
public_baseurl: http://127.0.0.1:$port/
pid_file: $work/synapse/pid
signing_key_path: $work/signing.key
log_config: $work/log.yaml
listeners:
  - {port: $port, bind_addresses: [127.0.0.1], type: http, x_forwarded: true, resources: [{names: [client, media]}]}
database: {name: sqlite3, args: {database: $work/synapse/homeserver.db}}
media_store_path: $work/synapse/media
enable_registration: true
enable_registration_without_verification: true
macaroon_secret_key: $(random 30)
form_secret: $(random 30)
report_stats: false
trusted_key_servers: []
suppress_key_server_warning: true
federation_domain_whitelist: []
rc_message: {per_second: 100, burst_count: 100}
rc_registration: {per_second: 100, burst_count: 100}
rc_login:
  address: {per_second: 100, burst_count: 100}
  account: {per_second: 100, burst_count: 100}
END
    start "$work/synapse.log" "$python" -m synapse.app.homeserver --config-path "$work/homeserver.yaml"
}

run_pawl() {
    start "$work/pawl.log" env PAWL_METRICS_LISTEN= PAWL_MAPPING="$root/config/mappings/matrix.yaml" "$pawl" serve \
        --policy hosted --listen "http://127.0.0.1:$port" --upstream "http://127.0.0.1:$tap_port" --data "$work/data"
}

# --- three people with an unmodified client --------------------------------------------------------------------------

wait_for_answer() { # LOG PID PATTERN: as wait_for, and ends when the process does
    local until=$((SECONDS + patience))
    until grep -aqE -- "$3" "$1"; do
        kill -0 "$2" 2>/dev/null && ((SECONDS < until)) || return 1
        sleep 0.05
    done
}

enter() { # PERSON URL OPTION...: starts the client of PERSON, whose login is that of ${person%-*}
    local person=$1 url=$2
    shift 2
    mkdir "$work/$person"
    printf '%s\n' "$password" >"$work/$person/password"
    : >"$work/$person/out" && : >"$work/$person/done"
    mkfifo "$work/$person/in"
    start "$work/$person.log" "$python" "$here/plays/matrix_client.py" "$url" "${nicks[${person%-*}]}" \
        "$work/$person" "$@"
    wait_for_answer "$work/$person.log" "$pid" '^here ' ||
        fail "${person%-*} could not sign in. The client says:" "$(tail -n 3 "$work/$person.log" | sed 's/^/    /')" \
            "$([[ -z $backend ]] || echo 'Your homeserver has to let people register (Synapse: enable_registration, and enable_registration_without_verification).')" \
            "$(logs 4)"
    ids[$person]=$(sed -n 's/^here //p' "$work/$person.log")
}

tell() { # PERSON COMMAND: has the client of PERSON do it; leaves what it came to in $answer
    local file=$work/$1/done count until=$((SECONDS + patience))
    count=$(wc -l <"$file")
    printf '%s\n' "$2" >"$work/$1/in"
    until (($(wc -l <"$file") > count)); do
        ((SECONDS < until)) || { answer="no answer came" && return 1; }
        sleep 0.05
    done
    answer=$(tail -n 1 "$file")
    [[ $answer != refused* ]]
}

logs() { # COUNT: the last lines of the gateway and of Synapse
    [[ ! -e $work/pawl.log ]] || tail -n "$1" "$work/pawl.log" | sed 's/^/    gateway: /'
    [[ ! -e $work/synapse.log ]] || tail -n "$1" "$work/synapse.log" | sed 's/^/    Synapse: /'
}

# FROM|TO|PROTECTION|TEXT. A text that begins with a star is an edit of what its writer said before.
backend_heading="THE SERVER STORED" conversations="two rooms"
script=(
    "alice|bob|gateway|Hi bob, did the clinic call you back?"
    "bob|alice|gateway|They did: all my results are fine. What a relief!"
    "bob|alice|gateway|* They did: all is fine, and next month I may run again."
    "carol|room|plaintext|Is anybody hungry? I know a place."
    "alice|room|gateway|Lunch at noon, the usual place?"
    "bob|room|gateway|Yes, and I bring the good wine."
    "carol|room|plaintext|Count me in, I am starving already!"
)
fallback=$(sed -n 's/^  fallback: //p' "$root/config/mappings/matrix.yaml")

cast() {
    case "$to" in
    room) who=(alice bob carol) title="a room: alice and bob through the gateway, carol past it" ;;
    *) who=(alice bob) title="alice and bob, end-to-gateway" ;;
    esac
}

new_scene() { # a room of all in $who
    local person invited=()
    for person in "${who[@]}"; do [[ $person == alice ]] || invited+=("${ids[$person]}"); done
    tell alice "create ${invited[*]}" || fail "alice could not make a room: $answer" "$(logs 4)"
    place=$answer
    rooms+=("$place")
    for person in "${who[@]}"; do
        [[ $person == alice ]] || wait_for "$work/$person.log" "^joined $place\$" ||
            fail "$person could not enter the room." "$(tail -n 3 "$work/$person.log" | sed 's/^/    /')" "$(logs 4)"
    done
}

say_it() {
    local command="say $place $text"
    [[ $text != "* "* ]] || command="edit $place $event ${text#\* }"
    event=''
    if tell "$from" "$command"; then event=$answer; else problems+=("$from could not say: $text" "    $answer"); fi
}

look() { # FILE: what it has of $event, into $view
    view=$(grep -aF -- " ${event:-nothing} " "$1" | tail -n 1 | cut -d ' ' -f 3-) || view=''
}

look_all() {
    local person view complete=yes
    views=()
    for person in "${who[@]}"; do
        look "$work/$person/out"
        views+=("${view:-(nothing)}")
        [[ -n $view ]] || complete=''
    done
    [[ -n $complete ]]
}

stored() { # ROOM EVENT: what the server itself says it has, asked past the gateway with alice's login
    python3 - "$direct" "$1" "$2" "$work/alice/token" <<'END' || echo "(the server does not say it)"
import json, sys, urllib.parse, urllib.request
url, room, event, token = sys.argv[1:]
path = f"{url}/_matrix/client/v3/rooms/{urllib.parse.quote(room)}/event/{urllib.parse.quote(event)}"
request = urllib.request.Request(path, headers={"Authorization": f"Bearer {open(token).read()}"})
print(json.dumps(json.load(urllib.request.urlopen(request, timeout=20))["content"], ensure_ascii=False, sort_keys=True))
END
}

look_at_backend() {
    local keep=$((backend_width * 5))
    captured=''
    [[ -n $event ]] || return 0
    content=$(stored "$place" "$event")
    captured=${content:0:keep}
    ((${#content} <= keep)) || captured+=$'\n'"(and $((${#content} - keep)) characters more)"
}

check_view() { # PERSON VIEW: whether this is what this person should see of the entry
    local expected="$text"
    [[ $1 != carol || $protection == plaintext ]] || expected=$fallback
    if [[ $1 != carol && $protection == plaintext ]]; then
        # Before the room was protected, and in its history, such a line is marked; later it is withheld, in words.
        [[ $2 != "<${nicks[$from]}> A message "*" was withheld: "* ]] || return 0
        expected="[not encrypted] $text"
    fi
    [[ $2 == "<${nicks[$from]}> $expected" ]] ||
        problems+=("$1 should see: <${nicks[$from]}> $expected" "    and saw: $2")
}

check_entry() {
    local index
    for ((index = 0; index < ${#who[@]}; index++)); do check_view "${who[index]}" "${views[index]}"; done
    if [[ $protection == gateway && $content != *'"pawl.envelope": "'* ]]; then
        problems+=("the server has no envelope of: $text")
    fi
    spoken+=("$place $event $from $to $protection $text")
}

read_again() { # bob, at another device: the history from its beginning
    local room entry place event from to protection text view
    enter bob-again "http://127.0.0.1:${ports[alice]}"
    for room in "${rooms[@]}"; do
        tell bob-again "history $room" || { problems+=("bob could not read again: $answer") && return; }
        for entry in "${spoken[@]}"; do
            read -r place event from to protection text <<<"$entry"
            [[ $place == "$room" ]] || continue
            look "$work/bob-again/history"
            check_view bob "${view:-(nothing)}"
            say "    ${view:-(nothing)}"
        done
    done
}

check_play() {
    local found
    say
    step "bob's other device, which was not there before, reads what was said"
    ((${#problems[@]})) || read_again
    search "between gateway and server was" gateway "$work/backend-sent" "$work/backend-received"
    found plaintext "$work/backend-received" # carol's words: otherwise the search proves nothing
    ((${#found[@]})) || problems+=("the recorder between gateway and server has not what carol wrote")
    [[ -z $backend ]] || return 0
    search "Synapse has on its disk" gateway "$work/synapse" "$work/synapse.log"
    found plaintext "$work/synapse"
    ((${#found[@]})) || problems+=("the files of Synapse have not what carol wrote")
}

explain_problems() {
    say "The clients end with:"
    tail -qn 3 "$work"/{alice,bob,carol}.log | sed 's/^/    /'
}

# --- the whole -------------------------------------------------------------------------------------------------------

set_stage() {
    local person number=''
    declare -gA ids=()
    rooms=() spoken=() password=$(random 20)
    patience=30
    if [[ -z $backend ]]; then
        listening Synapse "$work/synapse.log" run_synapse
        backend_address=TCP4:127.0.0.1:$port
        direct=http://127.0.0.1:$port
        backend_text="Synapse at 127.0.0.1:$port, unmodified, SQLite in a temporary directory"
    else
        check_backend
        direct=$backend
        backend_text="your server $backend"
        patience=90 # for its limits
        number=$((RANDOM % 9000 + 1000)) # names that nobody has
    fi
    tap=backend tap_to=$backend_address
    listening "the recorder (socat)" "$work/backend-tap.log" run_tap
    tap_port=$port
    fixed_port=$wanted_port
    listening "the gateway" "$work/pawl.log" run_pawl
    fixed_port=''
    ports[alice]=$port

    step "running on this machine"
    say "    alice, bob   matrix-nio, a Matrix client, without any encryption of its own, through the gateway"
    say "    carol        the same, but she passes the gateway by"
    say "    gateway      Pawl at http://127.0.0.1:${ports[alice]}, policy hosted, config/mappings/matrix.yaml"
    say "    recorder     socat, keeps every byte between gateway and backend"
    say "    backend      $backend_text"

    for person in alice bob carol; do nicks[$person]=$person$number; done
    enter alice "http://127.0.0.1:${ports[alice]}" --register
    enter bob "http://127.0.0.1:${ports[alice]}" --register
    enter carol "$direct" --register
}

conclude() {
    local seen=$(($(bytes "$work/backend-sent") + $(bytes "$work/backend-received")))
    say "${green}Everybody saw every line as they should.${plain} Among the $seen bytes between gateway and backend are no three"
    if [[ -z $backend ]]; then
        say "words in a row of what alice and bob wrote, and in Synapse's files, its database and log, neither: only carol's."
    else
        say "words in a row of what alice and bob wrote: only carol's."
    fi
    say "${bold}This is end-to-gateway, not end-to-end:${plain} the gateway seals and opens, and whoever runs it can read it."
    say "Who writes to whom, when, reactions, and names and topics of rooms stay visible to the backend."
    say
    step "pawl status"
    "$pawl" status --data "$work/data" | sed 's/^\(.\)/    \1/'
}

invite_you() {
    say
    step "your own client"
    say "    Any Matrix client will do that takes the address of a homeserver by hand: http://127.0.0.1:${ports[alice]}"
    [[ -n $backend ]] || say "    Register there, or sign in as ${ids[bob]}, password $password"
    say "    Make a room without encryption (what a client encrypts itself passes untouched), invite ${ids[alice]}"
    say "    and ${ids[carol]}, who passes the gateway by, and write. What the three see is shown here."
    say "    The server itself is at $direct, and the gateway answers in another terminal:"
    say "        $pawl watch --data $work/data"
    say
}

follow() { # what people see from now on
    local person
    for person in alice bob carol; do show "$work/$person/out" "s/^[^ ]* [^ ]* /    ${nicks[$person]} saw: /p"; done
}
