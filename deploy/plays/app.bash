# The play for apps: alice and bob use a client with PawlMessenger, olga the same client before its upgrade. Sourced by
# deploy/quickstart.
# shellcheck shell=bash disable=SC2034,SC2154 # variables that quickstart, the stage and the play share
# shellcheck disable=SC2004 # nicks and ports have names for indices

take_backend() { fail "--chat app brings its own backend." "Leave --backend out, or use --chat irc or --chat matrix."; }

install_tools() {
    local missing=()
    command -v curl >/dev/null || missing+=(curl)
    command -v python3 >/dev/null || missing+=(python3)
    install_missing ${missing[@]+"${missing[@]}"}
    products=(ChatClient ChatBackend)
}

# --- what runs -------------------------------------------------------------------------------------------------------

run_backend() {
    start "$work/backend.log" "$programs/ChatBackend" --port "$port" --control-port 0
}

enter() { # PERSON OPTION...: starts the client of PERSON
    local person=$1
    shift
    mkfifo "$work/$person.in"
    printf 'password of %s\n' "$person" >"$work/$person.password"
    start "$work/$person.log" bash -c 'exec "$@" <>"$0"' "$work/$person.in" "$programs/ChatClient" \
        "$url" "$person" --password-file "$work/$person.password" --data "$work/$person" "$@"
    nicks[$person]=$person
    wait_for "$work/$person.log" '^\*\*\* you are ' ||
        fail "$person could not sign in. The client says:" "$(tail -n 3 "$work/$person.log" | sed 's/^/    /')" "$(logs 4)"
}

logs() { # COUNT: the last lines of the backend
    tail -n "$1" "$work/backend.log" | sed 's/^/    backend: /'
}

# --- three people ----------------------------------------------------------------------------------------------------

# FROM|TO|PROTECTION|TEXT. Olga's client knows of no protection, so it shows no mark.
backend_heading="THE DATABASE HOLDS" conversations="two conversations"
script=(
    "alice|olga|plaintext|Olga, have you seen the new version of this app?"
    "olga|alice|plaintext|No, mine still works, and I never update anything."
    "alice|bob|plaintext|Hi bob, did the clinic call you back?"
    "bob|alice|e2e|They did: all my results are fine. What a relief!"
    "alice|bob|e2e|I am so glad, and I tell nobody but you."
    "alice|olga|plaintext|Fine with me: we can still write to each other."
)

cast() {
    case "$from $to" in
    *olga*) who=(alice olga) title="alice and olga, whose client is the old one: not encrypted" ;;
    *) who=(alice bob) title="alice and bob: the first text brings the keys, and then it is end-to-end" ;;
    esac
}

new_scene() { :; }

say_it() {
    # The keys are there before the answer is written; otherwise it would go unprotected, as the first text did.
    if [[ $protection == e2e ]]; then
        wait_for "$work/$from.log" "^\*\*\* keys were exchanged with $to\$" || problems+=("$from has no keys of $to")
    fi
    printf '%s %s\n' "$to" "$text" >"$work/$from.in"
}

look() { # PERSON TEXT: the line of PERSON's client that ends with TEXT, into $view; not while it waits for keys
    view=$(grep -aF -- ": $2" "$work/$1.log" | grep -avF '[waits for keys]' | tail -n 1) || view=''
}

look_all() {
    local person complete=yes
    views=()
    for person in "${who[@]}"; do
        look "$person" "$text"
        views+=("${view:-(nothing)}")
        [[ -n $view ]] || complete=''
    done
    [[ -n $complete ]]
}

database() { # all messages that the backend has, one a line
    curl -sS "http://127.0.0.1:$control/_control/messages" | python3 -c '
import json, sys
for message in json.load(sys.stdin)["messages"]:
    shown = {name: message[name] for name in ("sender", "text", "encrypted") if name in message}
    print(json.dumps(shown, ensure_ascii=False))'
}

look_at_backend() { # its last message of the writer that holds the text, or has the flag
    local line keep=$((backend_width * 4))
    if [[ $protection == e2e ]]; then
        line=$(database | grep -F "\"sender\": \"$from\"" | grep -F '"encrypted": true' | tail -n 1)
    else
        line=$(database | grep -F "\"sender\": \"$from\"" | grep -F -- "$text" | tail -n 1)
    fi || line=''
    captured=${line:0:keep}
    ((${#line} <= keep)) || captured+=$'\n'"(and $((${#line} - keep)) characters more)"
}

check_entry() {
    local index person other mark expected
    for ((index = 0; index < ${#who[@]}; index++)); do
        person=${who[index]}
        other="$from" && [[ $person != "$from" ]] || other="to $to"
        case $person-$protection in
        olga-*) mark='' ;;
        *-e2e) mark='[encrypted] ' ;;
        *) mark='[not encrypted] ' ;;
        esac
        expected="$mark$other: $text"
        [[ ${views[index]} == "$expected" ]] ||
            problems+=("$person should see: $expected" "    and saw: ${views[index]}")
    done
    [[ -n $captured ]] || problems+=("the database has nothing of: $text")
}

check_play() {
    local found
    database >"$work/database"
    search "the database has" e2e "$work/database"
    found plaintext "$work/database" # what was not encrypted: otherwise the search proves nothing
    ((${#found[@]})) || problems+=("the database has not what was said without encryption")
    ! grep -aqE 'PAWL|\*\*\*.*(keys|withheld)|[A-Za-z0-9+/]{60}' "$work/olga.log" ||
        problems+=("olga's old client was shown something that is not for people")
    ((${#problems[@]})) || compare_numbers
}

compare_numbers() { # at both clients; leaves the number in $number
    local person other=bob numbers=()
    for person in alice bob; do
        printf '/number %s\n' "$other" >"$work/$person.in"
        wait_for "$work/$person.log" "^\*\*\* safety number with $other: [ 0-9]+\$" || problems+=("$person shows no number")
        numbers+=("$(sed -n "s/^\*\*\* safety number with $other: //p" "$work/$person.log" | tail -n 1)")
        other=alice
    done
    number=${numbers[0]}
    [[ -n $number && ${numbers[1]} == "$number" ]] ||
        problems+=("alice and bob do not see the same safety number")
}

explain_problems() {
    say "The clients end with:"
    tail -qn 3 "$work"/{alice,bob,olga}.log | sed 's/^/    /'
}

# --- the whole -------------------------------------------------------------------------------------------------------

set_stage() {
    local name
    programs=$(dirname "$pawl")
    for name in ChatClient ChatBackend; do
        [[ -x $programs/$name ]] || fail "there is no $name in $programs." "PAWL_BIN has to name a program beside it, or nothing."
    done
    patience=30
    fixed_port=$wanted_port
    listening "the backend" "$work/backend.log" run_backend
    fixed_port=''
    url=http://127.0.0.1:$port
    wait_for "$work/backend.log" '^control on ' || fail "the backend has no control port." "$(logs 4)"
    control=$(sed -n 's/^control on //p' "$work/backend.log")

    step "running on this machine"
    say "    alice, bob   deploy/plays/ChatClient, a chat client for the terminal, built on PawlMessenger"
    say "    olga         the same client before its upgrade (--old): it knows of no encryption"
    say "    backend      a chat over REST at $url (Tests/ChatBackend), which knows nothing of Pawl"
    say "    gateway      none: an app that links PawlMessenger needs no gateway"
    enter olga --old
    enter alice
    enter bob
}

conclude() {
    say "${green}Everybody saw every line, with the right mark.${plain} The database has no three words in a row of what alice and"
    say "bob wrote after their keys were exchanged, and olga's old client saw words only: no key and no envelope."
    say "${bold}[encrypted] is end-to-end:${plain} the keys are in the clients. The first text between two upgraded clients is not:"
    say "it tells the other client that it can be asked for keys. From the first encrypted one there is no way back."
    say "Who writes to whom, and when, stays visible to the backend."
    say
    step "the safety number of alice and bob, the same in both clients"
    say "    $number"
}

invite_you() {
    say
    step "your own client"
    say "    $programs/ChatClient $url me --password-file FILE --data DIRECTORY"
    say "    Write: bob hello. What goes by is shown here. The database: curl http://127.0.0.1:$control/_control/messages"
    say
}

follow() { # what people see from now on
    local person
    for person in alice bob olga; do show "$work/$person.log" "s/^/    $person saw: /p"; done
}
