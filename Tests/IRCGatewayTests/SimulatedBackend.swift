import IRCCodec
import NIOCore

/// A backend in memory: enough of an IRC server to relay private messages, with or without IRCv3. The tests against real
/// servers stand in PeerTests; this one is for order, races, time and hostile behaviour.
final class SimulatedBackend {
    struct Person {
        var nick = "*"
        var user = ""
        var isRegistered = false
        var caps: Set<String> = []
        var isNegotiating = false
        var account: String?
        var isAway = false
        var inbox: [String] = []
    }

    /// What it offers; nothing means that it does not know CAP.
    var offers: [String]?
    var people: [Int: Person] = [:]
    /// Every line that it was sent, for the canary.
    private(set) var seen: [String] = []
    /// Changes lines that it relays, to be hostile; gives what is delivered in their place.
    var relay: (String) -> [String] = { [$0] }
    /// Who is in which room, by lower-cased name.
    private(set) var rooms: [String: Set<Int>] = [:]
    var services: [String: (host: String, server: String)] = [:]
    /// A filter of the server: takes what looks like Base64 and answers with a bare ACK, or with words.
    var filter: (silently: Bool, isOn: Bool) = (true, false)
    /// Before every JOIN: the tags that tell the time.
    var joinTags = ""
    /// What somebody is told who has joined: a server that plays back what was said before.
    var linesOnJoin: (Int, String) -> [String] = { _, _ in [] }
    /// What it announces as CASEMAPPING.
    var caseMapping = "ascii"
    /// What it sends to somebody before the end of the welcome.
    var linesInWelcome: (Int) -> [String] = { _ in [] }
    /// Whether the welcome ends.
    var endsWelcome = true
    /// Nobody is there.
    var isDown = false
    var refusesLogins = false
    /// The numeric with which it refuses every JOIN.
    var joinRefusal: Int?
    /// Whether the refusal of a JOIN has the name of the room.
    var namesRefusedRoom = true
    /// Answers nothing while set.
    var isStalled = false
    private var stalled: [(Int, String)] = []

    init(offers: [String]? = nil) { self.offers = offers }

    static let modern = [
        "message-tags", "server-time", "batch", "labeled-response", "echo-message", "account-tag", "extended-join",
        "multi-prefix", "sasl=PLAIN,EXTERNAL", "tls", "sts=port=6697,duration=1",
    ]

    func take(_ id: Int, _ text: String) {
        guard !isDown else { return }
        seen.append(text)
        guard !isStalled else { return stalled.append((id, text)) }
        handle(id, text)
    }

    /// What it was sent while it stalled is lost.
    func dropStalled() {
        stalled = []
        isStalled = false
    }

    func resume() {
        isStalled = false
        let waiting = stalled
        stalled = []
        for (id, text) in waiting { handle(id, text) }
    }

    private func handle(_ id: Int, _ text: String) {
        guard let line = try? IRCLine(ByteBuffer(string: text)) else { return }
        let verb = line.string(line.verbSpan).uppercased()
        switch verb {
        case "CAP": cap(id, line)
        case "AUTHENTICATE": authenticate(id, line.text(0) ?? "")
        case "NICK": nick(id, line.text(0) ?? "")
        case "USER":
            people[id]?.user = line.text(0) ?? ""
            register(id)
        case "PING": reply(id, line, ":srv PONG srv :\(line.text(0) ?? "")")
        case "WHOIS": whois(id, line.text(0) ?? "")
        case "PRIVMSG", "NOTICE", "TAGMSG": message(id, verb, line)
        case "JOIN": for room in (line.text(0) ?? "").split(separator: ",") { join(id, String(room)) }
        case "NAMES": names(id, line.text(0) ?? "")
        case "PART": for room in (line.text(0) ?? "").split(separator: ",") { part(id, String(room)) }
        case "KICK":
            let nick = (line.text(1) ?? "").lowercased()
            guard let gone = people.first(where: { $0.value.nick.lowercased() == nick })?.key else { break }
            kick(gone, from: line.text(0) ?? "", by: id)
        case "AWAY":
            let isAway = line.parameter(0) != nil
            people[id]?.isAway = isAway
            send(id, ":srv \(isAway ? 306 : 305) \(people[id]?.nick ?? "*") :Noted")
        default: break
        }
    }

    /// What a client says to log in; not Base64, which nobody here looks at.
    static func proof(_ account: String) -> String { "proof-\(account)" }

    private func authenticate(_ id: Int, _ text: String) {
        guard text != "PLAIN" else { return send(id, "AUTHENTICATE +") }
        let account = text.split(separator: "-").last.map(String.init) ?? ""
        let nick = people[id]?.nick ?? "*"
        guard !refusesLogins else { return send(id, ":srv 904 \(nick) :SASL authentication failed") }
        login(id, account)
        send(id, ":srv 903 \(nick) :SASL authentication successful")
    }

    private func cap(_ id: Int, _ line: IRCLine) {
        guard let offers else { return send(id, ":srv 421 * CAP :Unknown command") }
        let nick = people[id]?.nick ?? "*"
        switch line.text(0)?.uppercased() {
        case "LS":
            if people[id]?.isRegistered == false { people[id]?.isNegotiating = true }
            send(id, ":srv CAP \(nick) LS :" + offers.joined(separator: " "))
        case "REQ":
            if people[id]?.isRegistered == false { people[id]?.isNegotiating = true }
            let names = (line.text(1) ?? "").split(separator: " ").map(String.init)
            let known = Set(offers.map { String($0.prefix { $0 != "=" }) })
            guard names.allSatisfy({ known.contains($0.hasPrefix("-") ? String($0.dropFirst()) : $0) }) else {
                return send(id, ":srv CAP \(nick) NAK :" + names.joined(separator: " "))
            }
            for name in names {
                if name.hasPrefix("-") {
                    people[id]?.caps.remove(String(name.dropFirst()))
                } else {
                    people[id]?.caps.insert(name)
                }
            }
            send(id, ":srv CAP \(nick) ACK :" + names.joined(separator: " "))
        case "LIST": send(id, ":srv CAP \(nick) LIST :" + (people[id]?.caps.sorted() ?? []).joined(separator: " "))
        case "END":
            people[id]?.isNegotiating = false
            register(id)
        default: send(id, ":srv 410 \(nick) \(line.text(0) ?? "") :Invalid CAP command")
        }
    }

    func nick(_ id: Int, _ new: String) {
        if people.contains(where: { $0.key != id && $0.value.nick.lowercased() == new.lowercased() }) {
            return send(id, ":srv 433 * \(new) :Nickname is already in use")
        }
        if people[id]?.isRegistered == true { send(id, ":\(source(id)) NICK \(new)") }
        people[id]?.nick = new
        register(id)
    }

    private func register(_ id: Int) {
        guard let person = people[id], !person.isRegistered, !person.isNegotiating, person.nick != "*",
            !person.user.isEmpty
        else { return }
        people[id]?.isRegistered = true
        send(id, ":srv 001 \(person.nick) :Welcome")
        let tokens = "CASEMAPPING=\(caseMapping) NICKLEN=30 CHANTYPES=# STATUSMSG=@+"
        send(id, ":srv 005 \(person.nick) \(tokens) :are supported")
        for line in linesInWelcome(id) { send(id, line) }
        if endsWelcome { send(id, ":srv 422 \(person.nick) :No MOTD") }
    }

    func login(_ id: Int, _ account: String) {
        people[id]?.account = account
        let nick = people[id]?.nick ?? "*"
        send(id, ":srv 900 \(nick) \(source(id)) \(account) :You are now logged in as \(account)")
    }

    func logout(_ id: Int) {
        people[id]?.account = nil
        let nick = people[id]?.nick ?? "*"
        send(id, ":srv 901 \(nick) \(source(id)) :You are now logged out")
    }

    func join(_ id: Int, _ room: String) {
        if let joinRefusal {
            let name = namesRefusedRoom ? " \(room)" : ""
            return send(id, ":srv \(joinRefusal) \(people[id]?.nick ?? "*")\(name) :Cannot join channel")
        }
        guard rooms[room.lowercased(), default: []].insert(id).inserted else { return }
        for member in rooms[room.lowercased(), default: []].sorted() {
            send(member, joinTags + ":\(source(id)) JOIN \(room)")
        }
        if people[id]?.caps.contains(where: { $0.hasSuffix("no-implicit-names") }) != true { names(id, room) }
        for line in linesOnJoin(id, room) { send(id, line) }
    }

    private func names(_ id: Int, _ room: String) {
        let names = rooms[room.lowercased(), default: []].sorted().compactMap { people[$0]?.nick }
        send(id, ":srv 353 \(people[id]?.nick ?? "*") = \(room) :@" + names.joined(separator: " +"))
        send(id, ":srv 366 \(people[id]?.nick ?? "*") \(room) :End of /NAMES list.")
    }

    /// Puts somebody out of a room without a word.
    func quietlyRemove(_ id: Int, from room: String) { rooms[room.lowercased()]?.remove(id) }

    /// The socket is gone.
    func leave(_ id: Int) {
        people[id] = nil
        for room in rooms.keys { rooms[room]?.remove(id) }
    }

    func part(_ id: Int, _ room: String) {
        for member in rooms[room.lowercased(), default: []].sorted() { send(member, ":\(source(id)) PART \(room)") }
        rooms[room.lowercased()]?.remove(id)
    }

    func kick(_ gone: Int, from room: String, by id: Int) {
        let nick = people[gone]?.nick ?? "*"
        for member in rooms[room.lowercased(), default: []].sorted() {
            send(member, ":\(source(id)) KICK \(room) \(nick) :out")
        }
        rooms[room.lowercased()]?.remove(gone)
    }

    private func send(_ id: Int, _ verb: String, inRoom room: String, _ text: String, _ line: IRCLine) {
        guard let sender = people[id] else { return }
        let members = rooms[room.lowercased().trimmingStatus, default: []]
        guard members.contains(id) else {
            return reply(id, line, ":srv 404 \(sender.nick) \(room) :Cannot send to channel")
        }
        for relayed in relay(":\(source(id)) \(verb) \(room) :\(text)") {
            for member in members.sorted() where member != id {
                guard let reader = people[member] else { continue }
                send(member, tags(line, from: sender, to: reader) + relayed)
            }
            if sender.caps.contains("echo-message") { reply(id, line, relayed, id: "m\(seen.count)") }
        }
    }

    private func whois(_ id: Int, _ nick: String) {
        let me = people[id]?.nick ?? "*"
        if let service = services[nick.lowercased()] {
            send(id, ":srv 311 \(me) \(nick) services \(service.host) * :Service")
            send(id, ":srv 312 \(me) \(nick) \(service.server) :Services")
        } else if let person = people.values.first(where: { $0.nick.lowercased() == nick.lowercased() }) {
            send(id, ":srv 311 \(me) \(nick) \(person.user) host.test * :Person")
            send(id, ":srv 312 \(me) \(nick) srv :A server")
        } else {
            send(id, ":srv 401 \(me) \(nick) :No such nick")
        }
        send(id, ":srv 318 \(me) \(nick) :End of WHOIS")
    }

    func source(_ id: Int) -> String { "\(people[id]?.nick ?? "*")!\(people[id]?.user ?? "u")@host.test" }

    private func message(_ id: Int, _ verb: String, _ line: IRCLine) {
        guard let sender = people[id], sender.isRegistered else { return }
        let text = line.text(1) ?? ""
        for target in (line.text(0) ?? "").split(separator: ",").map(String.init) {
            if services[target.lowercased()] != nil { continue }
            if "#@+".contains(target.prefix(1)) {
                send(id, verb, inRoom: target, text, line)
                continue
            }
            guard let other = people.first(where: { $0.value.nick.lowercased() == target.lowercased() }) else {
                reply(id, line, ":srv 401 \(sender.nick) \(target) :No such nick")
                continue
            }
            if filter.isOn, text.contains("?PAWL:") {
                let refusal = ":srv NOTICE \(sender.nick) :Your message to \(target) was blocked"
                reply(id, line, filter.silently ? ":srv ACK" : refusal)
                continue
            }
            if other.value.isAway { reply(id, line, ":srv 301 \(sender.nick) \(target) :gone fishing") }
            let tail = verb == "TAGMSG" ? "TAGMSG \(target)" : "\(verb) \(target) :\(text)"
            let echoes = sender.caps.contains("echo-message")
            // To oneself the delivery comes first, as InspIRCd does it.
            if echoes, other.key != id { reply(id, line, ":\(source(id)) \(tail)", id: "m\(seen.count)") }
            for relayed in relay(":\(source(id)) \(tail)") {
                send(other.key, tags(line, from: sender, to: other.value) + relayed)
            }
            if echoes, other.key == id { reply(id, line, ":\(source(id)) \(tail)", id: "m\(seen.count)") }
        }
    }

    /// The tags of a relayed line.
    private func tags(_ line: IRCLine, from sender: Person, to reader: Person) -> String {
        var tags: [String] = []
        if reader.caps.contains("message-tags") {
            tags = line.tagList.filter(\.isClientOnly).map { $0.value.isEmpty ? $0.key : "\($0.key)=\($0.value)" }
            if !tags.isEmpty { tags.append("msgid=m\(seen.count)") }
        }
        if reader.caps.contains("account-tag"), let account = sender.account { tags.append("account=\(account)") }
        return tags.isEmpty ? "" : "@" + tags.joined(separator: ";") + " "
    }

    private func reply(_ id: Int, _ line: IRCLine, _ text: String, id remoteID: String? = nil) {
        var tags: [String] = []
        if let label = line.tag("label"), people[id]?.caps.contains("labeled-response") == true {
            tags.append("label=\(label)")
        }
        if let remoteID, people[id]?.caps.contains("message-tags") == true { tags.append("msgid=\(remoteID)") }
        send(id, (tags.isEmpty ? "" : "@" + tags.joined(separator: ";") + " ") + text)
    }

    /// What those who are named here are told comes when they are released.
    var delayed: [Int: [String]] = [:]

    func send(_ id: Int, _ line: String) {
        guard delayed[id] == nil else { return delayed[id, default: []].append(line) }
        people[id]?.inbox.append(line)
    }

    func release(_ id: Int) { people[id]?.inbox += delayed.removeValue(forKey: id) ?? [] }

    /// Returns the lines that it would have delivered meanwhile, and does not.
    func withholding(_ body: () -> Void) -> [String] {
        var lines: [String] = []
        relay = { line in
            lines.append(line)
            return []
        }
        body()
        relay = { [$0] }
        return lines
    }
}

extension String {
    /// The room without the status that its readers must have.
    fileprivate var trimmingStatus: String { String(drop { $0 == "@" || $0 == "+" }) }
}
