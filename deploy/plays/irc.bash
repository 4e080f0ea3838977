# The play for IRC: alice directly at the gateway, bob and carol behind sidecars. Sourced by deploy/quickstart.
# shellcheck shell=bash disable=SC2034,SC2154 # variables that quickstart, the stage and the play share
# shellcheck disable=SC2004 # nicks and ports have names for indices

take_backend() { parse_backend irc 6667 ircs 6697 "an IRC server"; }

install_tools() {
    local missing=()
    [[ -n $backend ]] || command -v ngircd >/dev/null || missing+=(ngircd)
    command -v ii >/dev/null || missing+=(ii)
    command -v socat >/dev/null || missing+=(socat)
    install_missing ${missing[@]+"${missing[@]}"}
}

# --- what runs -------------------------------------------------------------------------------------------------------

run_ngircd() {
    # As delivered ngIRCd asks PAM and an ident service, allows a few connections from an address and slows clients
    # down. The gateway is one address for all, so a server behind it is configured like this, or is told who the
    # clients are (WEBIRC, PROXY).
    cat >"$work/ngircd.conf" <<END
[Global]
Name = irc.quickstart.example
Info = Started by deploy/quickstart
AdminInfo1 = deploy/quickstart
AdminEMail = nobody@quickstart.example
Listen = 127.0.0.1
Ports = $port
MotdPhrase = An unmodified ngIRCd, which knows nothing of Pawl.
[Limits]
MaxConnectionsIP = 0
MaxPenaltyTime = 0
[Options]
PAM = no
DNS = no
Ident = no
END
    start "$work/ngircd.log" ngircd -n -f "$work/ngircd.conf"
}

run_pawl() {
    start "$work/pawl.log" "${pacing[@]}" PAWL_METRICS_LISTEN= "$pawl" serve --policy hosted \
        --listen "irc://127.0.0.1:$port" --upstream "irc://127.0.0.1:$backend_port" --data "$work/data"
}

run_sidecar() { # of $person
    start "$work/$person-sidecar.log" "${pacing[@]}" "$pawl" sidecar \
        --listen "irc://127.0.0.1:$port" --upstream "irc://127.0.0.1:$front_port" --data "$work/data-$person"
}

# --- three people with an unmodified client --------------------------------------------------------------------------

join() { # NAME: connects ii to its port and waits for the welcome; leaves the nick that it got in nicks
    local name=$1 nick=$1 attempt tries log=$work/$1.log
    for attempt in 1 2 3 4; do
        ((attempt == 1)) || nick=$name$((RANDOM % 900 + 100)) # somebody has that nick; every server takes nine characters
        start "$log" ii -s 127.0.0.1 -p "${ports[$name]}" -n "$nick" -f "$name" -i "$work/$name"
        for ((tries = 0; tries < 600; tries++)); do
            ! grep -aqE '^[0-9]+ :[^ ]+ 001 ' "$log" || { nicks[$name]=$nick; return 0; }
            ! grep -aqE '^[0-9]+ :[^ ]+ (432|433|436|437) ' "$log" || break
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
        grep -aqE '^[0-9]+ :[^ ]+ (432|433|436|437) ' "$log" || break
        stop "$pid"
        unset 'started[-1]'
        rm -rf "${work:?}/$name"
    done
    fail "$name could not connect to the server. The last lines that came:" "$(tail -n 6 "$log" | sed 's/^/    /')" \
        "$([[ -z $backend ]] || echo 'A server that wants a password or an account, or allows few connections from one address, cannot be used here.')" \
        "$(logs 4)"
}

logs() { # COUNT: the last lines of the gateway and the sidecars
    tail -n "$1" "$work/pawl.log" | sed 's/^/    gateway: /'
    local person
    for person in bob carol me; do
        [[ ! -e $work/$person-sidecar.log ]] ||
            tail -n "$1" "$work/$person-sidecar.log" | sed "s/^/    $person's sidecar: /"
    done
}

published() { # NAME: waits until the gateway has the public keys of the sidecar, and the sidecar has said so
    wait_for "$work/$1.log" 'The gateway of this network has your keys' ||
        fail "the gateway did not take the keys of $1's sidecar. The last lines that came:" \
            "$(tail -n 6 "$work/$1.log" | sed 's/^/    /')" "$(logs 4)"
}

enter_room() { # all three, and everybody has seen that the others are there
    local person
    for person in alice bob carol; do
        printf '/j %s\n' "$room" >"$work/$person/127.0.0.1/in"
        wait_for "$work/$person.log" " 366 [^ ]+ $room " ||
            fail "$person could not enter $room. The last lines that came:" \
                "$(tail -n 6 "$work/$person.log" | sed 's/^/    /')" "$(logs 4)"
    done
    for person in "alice bob" "alice carol" "bob carol"; do
        wait_for "$work/${person% *}.log" "^[0-9]+ :${nicks[${person#* }]}![^ ]+ JOIN :?$room" ||
            fail "${person% *} did not see ${person#* } enter $room." "$(logs 4)"
    done
}

# FROM|TO|PROTECTION|TEXT. People behind a sidecar see the protection as a mark; alice's client knows of none.
backend_heading="THE BACKEND SAW" conversations="three conversations"
script=(
    "alice|bob|gateway|Hi bob, did the clinic call you back?"
    "bob|alice|gateway|They did: all my results are fine. What a relief!"
    "bob|carol|e2e|Carol, only for you: I resign on Monday."
    "carol|bob|e2e|I keep it to myself. Do they know why?"
    "bob|carol|e2e|They will, when they read my letter."
    "alice|room|gateway|Lunch at noon, the usual place?"
    "bob|room|gateway|Yes, and I bring the good wine."
    "carol|room|gateway|Count me in, I am starving already!"
)

cast() {
    case "$from $to" in
    *room) who=(alice bob carol) title="$room: alice, bob and carol, end-to-gateway" ;;
    *alice*) who=(alice bob) title="alice and bob, end-to-gateway" ;;
    *) who=(bob carol) title="bob and carol, end-to-end" ;;
    esac
}

new_scene() { [[ $to != room ]] || enter_room; }

look() { # PERSON WINDOW NICK TEXT: what PERSON's window has of NICK that holds this text, marks included, into $view
    local out=$work/$1/127.0.0.1/$2/out line
    view=''
    [[ -e $out ]] || return 0
    while IFS= read -r line; do
        line=${line#* }
        [[ $line != "<$3> "*"$4"* ]] || view=$line
    done <"$out"
}

look_all() { # what all in $who saw of the entry into views; whether everybody saw something
    local person window complete=yes
    views=()
    for person in "${who[@]}"; do
        window=$room
        [[ $to == room ]] || window=${nicks[$([[ $person == "$from" ]] && echo "$to" || echo "$from")]}
        look "$person" "$window" "${nicks[$from]}" "$text"
        views+=("${view:-(nothing)}")
        [[ -n $view ]] || complete=''
    done
    [[ -n $complete ]]
}

shorten() { # lines for the backend's column: long ones cut, and of an envelope that needs many lines the first
    local line keep=$((backend_width * 2)) more=0 length=0
    while IFS= read -r line; do
        if [[ $line =~ :\?PAWL:[0-9a-f]{8},[1-9][0-9]?, ]]; then
            more=$((more + 1)) length=$((length + ${#line}))
            continue
        fi
        ((more == 0)) || printf '(and %d lines more of it, %d characters)\n' "$more" "$length"
        more=0 length=0
        ((${#line} <= keep + backend_width)) ||
            line="${line:0:keep}"$'\n'"(and $((${#line} - keep)) characters more)"
        printf '%s\n' "$line"
    done
    ((more == 0)) || printf '(and %d lines more of it, %d characters)\n' "$more" "$length"
}

look_at_backend() {
    sleep 0.1 # what follows the message to the backend belongs to its row
    sent=$(tail -c "+$((mark + 1))" "$work/backend-sent" | tr -d '\r')
    captured=$(shorten <<<"$sent")
}

say_it() { # the entry, by its writer's client
    mark=$(bytes "$work/backend-sent")
    if [[ $to == room ]]; then
        printf '%s\n' "$text" >"$work/$from/127.0.0.1/$room/in"
    else
        printf '/j %s %s\n' "${nicks[$to]}" "$text" >"$work/$from/127.0.0.1/in"
    fi
}

check_entry() { # adds to $problems what is not as it should be
    local index person expected
    for ((index = 0; index < ${#who[@]}; index++)); do
        person=${who[index]} expected="<${nicks[$from]}> $text"
        [[ $person == alice || $person == "$from" ]] || expected="<${nicks[$from]}> [$protection] $text"
        [[ ${views[index]} == "$expected" ]] ||
            problems+=("$person should see: $expected" "    and saw: ${views[index]}")
    done
    grep -qE '^(@[^ ]+ )?PRIVMSG [^ ]+ :\?PAWL:' <<<"$sent" || problems+=("the backend got no envelope for: $text")
}

search_captures() { # in both directions: nothing at the backend; at the gateway nothing of what was end-to-end
    local protection found
    for protection in gateway e2e; do
        search "the backend saw" "$protection" "$work/backend-sent" "$work/backend-received"
    done
    search "the gateway saw" e2e "$work/front-sent" "$work/front-received"
    found gateway "$work/front-sent" "$work/front-received" # it sees these: otherwise the search proves nothing
    ((${#found[@]})) || problems+=("the recorder between sidecars and gateway has not what bob wrote to alice")
}

safety_number() { # OF WITH: what the sidecar of OF says about WITH, in $number
    number=$("$pawl" sidecar verify "${nicks[$2]}" --plain --data "$work/data-$1" | sed 's/^\(.\)/    \1/') || number=''
}

digits() { sed -n '/^[ 0-9]*$/p' <<<"$number"; }

compare_numbers() { # bob's sidecar and carol's; leaves what bob's says in $number
    local other
    safety_number carol bob
    other=$(digits)
    safety_number bob carol
    [[ -n $other && $(digits) == "$other" ]] ||
        problems+=("the sidecars of bob and carol do not show the same safety number")
}

follow() { # what people and the backend see from now on
    local person shown
    for person in alice bob carol; do
        shown="s/^[0-9]* :\([^! ]*\)![^ ]* PRIVMSG \(#[^ ]*\) :\(.*\)/    ${nicks[$person]} saw in \2: <\1> \3/p"
        shown+=";s/^[0-9]* :\([^! ]*\)![^ ]* PRIVMSG [^ ]* :\(.*\)/    ${nicks[$person]} saw: <\1> \2/p"
        show "$work/$person.log" "$shown"
    done
    show "$work/backend-sent" 's/\r$//; s/^\(@[^ ]* \)\{0,1\}\(PRIVMSG .*\)/    the backend saw: \2/p'
}

# --- the whole -------------------------------------------------------------------------------------------------------

set_stage() {
    if [[ -z $backend ]]; then
        listening ngIRCd "$work/ngircd.log" run_ngircd
        backend_address=TCP4:127.0.0.1:$port
        backend_text="ngIRCd at 127.0.0.1:$port, unmodified"
        pacing=(env PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND=0) # this ngIRCd does not slow clients down
        patience=20
        room='#lunch'
    else
        check_backend
        backend_text="your server $backend"
        pacing=(env)
        patience=90 # the first line to a new device is several for the server, which takes one a second
        room="#lunch-$((RANDOM % 9000 + 1000))" # nobody else's
    fi
    tap=backend tap_to=$backend_address
    listening "the recorder (socat)" "$work/backend-tap.log" run_tap
    backend_port=$port
    fixed_port=$wanted_port
    listening "the gateway" "$work/pawl.log" run_pawl
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
    say "    alice        ii, an IRC client that knows nothing of encryption, directly at the gateway"
    say "    bob, carol   ii as well, each behind a sidecar (pawl sidecar) of their own, which holds their keys"
    say "    sidecars     127.0.0.1:${ports[bob]} and 127.0.0.1:${ports[carol]}; the network is for them the gateway"
    say "    gateway      Pawl at 127.0.0.1:${ports[alice]}, policy hosted, SQLite store in a temporary directory"
    say "    recorders    socat, keep every byte between gateway and backend, and between sidecars and gateway"
    say "    backend      $backend_text"

    for person in alice bob carol; do join "$person"; done
    for person in bob carol; do published "$person"; done
}

check_play() {
    search_captures
    ((${#problems[@]})) || compare_numbers
}

explain_problems() {
    say "The last lines that alice, bob and carol got from the server:"
    tail -qn 3 "$work/alice.log" "$work/bob.log" "$work/carol.log" | sed 's/^/    /'
    [[ -z $backend ]] || say "Your server may forbid private messages between new people, or filter long lines."
}

conclude() {
    seen=$(($(bytes "$work/backend-sent") + $(bytes "$work/backend-received")))
    say "${green}Everybody saw every line, with the right mark.${plain} Among the $seen bytes to and from the backend are"
    say "no three words of it in a row."
    say "${bold}[gateway] is end-to-gateway, not end-to-end:${plain} alice has no device of her own, so the gateway seals and"
    say "opens. Whoever runs it can read what alice and bob write to each other, and the whole room."
    say "${bold}[e2e] is end-to-end:${plain} the keys of bob and carol are in their sidecars. Whoever runs the gateway cannot"
    say "read what they write to each other: between sidecars and gateway were no three words of it either."
    say "Who writes to whom, and when, stays visible to the backend and to the gateway."

    say
    step "pawl status"
    "$pawl" status --data "$work/data" | sed 's/^\(.\)/    \1/'
    say
    step "pawl devices list: public keys only"
    "$pawl" devices list --data "$work/data" | sed 's/^\(.\)/    \1/'
    say
    step "pawl sidecar verify ${nicks[carol]} --plain, at bob's sidecar; carol's shows the same digits"
    say "$number"
}

invite_you() {
    person=me # bob's is bob's: people who come with another nick would take his keys to it
    listening "your sidecar" "$work/me-sidecar.log" run_sidecar

    say
    step "your own client, without TLS"
    say "    at the gateway, like alice:        127.0.0.1, port ${ports[alice]}"
    say "        irssi -c 127.0.0.1 -p ${ports[alice]} -n me"
    say "    at a sidecar of yours, like bob:   127.0.0.1, port $port"
    say "        weechat irc://me@127.0.0.1:$port"
    say "    (bob's own sidecar is at port ${ports[bob]}, and is for bob alone.)"
    say "    Write to somebody who is there: /msg ${nicks[carol]} hello, or /join $room. What goes by is shown here."
    say "    Ask the gateway, or your sidecar, in another terminal:"
    say "        $pawl watch --data $work/data"
    say "        $pawl sidecar status --data $work/data-me"
    say
}
