// The machine of a messenger's connection with an IRC server: registration, login, fragments, pacing, and which messages
// the server has taken. Lines and times go in, actions come out; it has no socket and no clock.

import DequeModule
import Envelope
import IRCCodec
import NIOCore

/// What is sent to a nick.
struct IRCOutgoing: Sendable, Equatable {
    enum Content: Sendable, Equatable {
        /// An envelope, in as many lines as it needs.
        case envelope([UInt8], id: UInt32)
        /// An unprotected text; with the announcement of keys if it is due.
        case text(String, announces: Bool)
    }

    /// See ``IRCChat/isNick(_:)``.
    var nick: String
    var content: Content
    /// A NOTICE is answered by no program. Introductions are notices.
    var isNotice = false
}

/// Why something was not sent.
enum IRCSendFailure: Error, Sendable, Equatable {
    /// The connection is not there, or was lost; or the recipient is not. It may succeed later.
    case offline
    /// It cannot be sent, with the reason.
    case refused(String)
}

/// The state of one connection.
struct IRCChatMachine {
    struct Settings: Sendable {
        var nick: String
        var serverPassword: String?
        /// Name and password for SASL PLAIN; nil for none.
        var login: (account: String, password: String)?
        var pacing: Pacer.Limit
    }

    enum Action: Equatable {
        /// A line with CR LF.
        case write(ByteBuffer)
        /// The server has accepted nick and login.
        case ready
        /// The server does not accept nick or login, with its words. The connection ends.
        case refused(String)
        case close
        /// An envelope, under a folded nick.
        case envelope([UInt8], from: String)
        /// An unprotected text, under a folded nick, and whether the sender has announced keys.
        case text(String, from: String, announces: Bool)
        case sent(UInt64)
        case failed(UInt64, IRCSendFailure)
    }

    private enum Phase {
        case capabilities
        case login
        case welcome
        /// The server has sent the nick; ISUPPORT follows.
        case greeted
        case ready
        case ended
    }

    private struct Job {
        /// Nil if nobody waits for it.
        var ticket: UInt64?
        /// Folded.
        var target: String
        var lines: Deque<ByteBuffer>
        var hasBegun = false
    }

    /// Ours: lines that wait for the pacer. At one line a second, eight minutes.
    static let lineLimit = 512
    /// Ours: how long registration, and the answer to a PING, may take, in nanoseconds.
    static let patience: Int64 = 90_000_000_000
    /// Ours: a PING is sent after this time without a line from the server, in nanoseconds.
    static let silence: Int64 = 120_000_000_000
    /// Ours: lines of a CAP LS, and capabilities in them.
    private static let capabilityLimit = 256

    private let settings: Settings
    private var phase = Phase.capabilities
    private var nick: String
    private var support = ServerSupport()
    private var sourceLength = 0
    private var offered: Set<String> = []
    private var hasTags = false
    private var isLoggedIn = false
    private var pacer: Pacer
    private var queue: Deque<Job> = []
    private var queuedLines = 0
    /// Written and not confirmed, in their order.
    private var written: [(ticket: UInt64, target: String)] = []
    /// PINGs without an answer: the number, the time, and how many of ``written`` it confirms.
    private var pings: Deque<(number: UInt64, at: Int64, count: Int)> = []
    private var lastPing: UInt64 = 0
    private var lastLine: Int64
    private let started: Int64
    private var fragments = FragmentAssembler()

    init(_ settings: Settings, now: Int64) {
        (self.settings, nick, pacer) = (settings, settings.nick, Pacer(settings.pacing))
        (lastLine, started) = (now, now)
    }

    // MARK: Registration

    /// The connection is open.
    mutating func opened() -> [Action] {
        var actions: [Action] = []
        if let password = settings.serverPassword { actions.append(Self.write("PASS :\(password)")) }
        actions += ["CAP LS 302", "NICK \(nick)", "USER \(nick) 0 * :\(nick)"].map(Self.write)
        return actions
    }

    private static func write(_ line: String) -> Action { .write(ByteBuffer(string: line + "\r\n")) }

    private mutating func capabilities(_ line: IRCLine) -> [Action] {
        switch line.text(1)?.uppercased() {
        case "LS":
            let isLast = line.text(2) != "*"
            let names = (line.text(isLast ? 2 : 3) ?? "").split(separator: " ")
            for name in names where offered.count < Self.capabilityLimit {
                offered.insert(String(name.prefix { $0 != "=" }))
            }
            return isLast ? request() : []
        case "ACK":
            hasTags = offered.contains("message-tags")
            guard settings.login != nil else { return endCapabilities() }
            phase = .login
            return [Self.write("AUTHENTICATE PLAIN")]
        case "NAK":
            return settings.login == nil ? endCapabilities() : refuse("The server does not accept a login by SASL.")
        default: return []
        }
    }

    private mutating func request() -> [Action] {
        guard case .capabilities = phase else { return [] }
        var wanted = ["message-tags"].filter(offered.contains)
        if settings.login != nil {
            guard offered.contains("sasl") else { return refuse("The server offers no login by SASL.") }
            wanted.append("sasl")
        }
        return wanted.isEmpty ? endCapabilities() : [Self.write("CAP REQ :" + wanted.joined(separator: " "))]
    }

    private mutating func endCapabilities() -> [Action] {
        phase = .welcome
        return [Self.write("CAP END")]
    }

    private func authenticate() -> [Action] {
        guard case .login = phase, let login = settings.login else { return [] }
        var encoded: [UInt8] = []
        Base64.encode(Array("\(login.account)\0\(login.account)\0\(login.password)".utf8)[...], into: &encoded)
        // SASL has padding, and the armour has none.
        encoded += [UInt8](repeating: UInt8(ascii: "="), count: (4 - encoded.count % 4) % 4)
        // IRCv3 sasl-3.1: pieces of 400; one of exactly 400 is followed by another.
        var pieces = stride(from: 0, to: encoded.count, by: 400).map {
            String(decoding: encoded[$0..<min($0 + 400, encoded.count)], as: UTF8.self)
        }
        if pieces.last?.utf8.count == 400 { pieces.append("+") }
        return pieces.map { Self.write("AUTHENTICATE \($0)") }
    }

    private mutating func refuse(_ reason: String) -> [Action] {
        phase = .ended
        return [.refused(reason), .close]
    }

    private mutating func end() -> [Action] {
        phase = .ended
        return [.close]
    }

    // MARK: Lines of the server

    /// A line has come, without CR LF.
    mutating func received(_ bytes: ByteBuffer, now: Int64) -> [Action] {
        if case .ended = phase { return [] }
        lastLine = now
        guard let line = try? IRCLine(bytes) else { return [] }
        if line.sourceIsPerson, fold(line.string(line.sourceNick)) == fold(nick) {
            sourceLength = max(sourceLength, line.source.count)
        }
        return received(line, now: now) + pump(now: now)
    }

    private mutating func received(_ line: IRCLine, now: Int64) -> [Action] {
        switch line.string(line.verbSpan).uppercased() {
        case "PING": return [Self.write("PONG :\(line.text(0) ?? "")")]
        case "PONG": return confirm(line.parameters.last.map(line.string) ?? "")
        case "ERROR": return end()
        case "CAP": return capabilities(line)
        case "AUTHENTICATE": return line.text(0) == "+" ? authenticate() : []
        case "900": isLoggedIn = true
        case "903":
            guard case .login = phase else { return [] }
            isLoggedIn = true
            return endCapabilities()
        case "902", "904", "905", "906", "908": return refuse(line.parameters.last.map(line.string) ?? "")
        case "001":
            guard settings.login == nil || isLoggedIn else { return refuse("The server has asked for no login.") }
            guard fold(line.text(0) ?? "") == fold(nick) else { return refuse("The server gives another nick.") }
            phase = .greeted
        case "005": support.absorb(line)
        case "376", "422":
            guard case .greeted = phase else { return [] }
            phase = .ready
            return [.ready]
        case "432", "464", "465", "484": return refuse(line.parameters.last.map(line.string) ?? "")
        // The nick is in use; perhaps by a connection of before.
        case "433", "436", "437": return isReady ? [] : end()
        case "NICK" where fold(line.string(line.sourceNick)) == fold(nick): return end()
        case "PRIVMSG", "NOTICE": return message(line, now: now)
        case let verb: if Self.sendErrors.contains(verb) { return failed(line, verb) }
        }
        return []
    }

    private func fold(_ name: String) -> String { support.caseMapping.fold(name) }

    private var isReady: Bool { if case .ready = phase { true } else { false } }

    private mutating func message(_ line: IRCLine, now: Int64) -> [Action] {
        let source = line.folded(line.sourceNick, support.caseMapping)
        guard line.sourceIsPerson, let span = line.parameter(1), fold(line.text(0) ?? "") == fold(nick),
            source != fold(nick)
        else { return [] }
        let text = Array(line.slice(span).readableBytesView)
        if let armour = Armour.parse(text[...]) {
            switch armour {
            case .whole(let bytes): return [.envelope(bytes, from: source)]
            case .fragment(let id, let index, let count, let bytes):
                let outcome = fragments.add(
                    source: line.string(line.source), target: "", id: id, index: index, count: count, bytes: bytes,
                    now: now)
                guard case .complete(let envelope) = outcome else { return [] }
                return [.envelope(envelope, from: source)]
            case .notice, .damaged: return []
            }
        }
        guard line.matches(line.verbSpan, "PRIVMSG") else { return [] }
        let stripped = Announcement.stripped(text)
        var words = stripped ?? text
        switch CTCP(words) {
        case nil: break
        case .action: words = Array("/me ".utf8) + words.dropFirst(8).filter { $0 != 1 }
        case .dcc, .other: return []
        }
        let announces = stripped != nil || line.tag(Announcement.tag) != nil
        return [.text(String(decoding: words, as: UTF8.self), from: source, announces: announces)]
    }

    // MARK: Sending

    /// Queues lines for a nick.
    ///
    /// - Parameter ticket: for ``Action/sent(_:)`` or ``Action/failed(_:_:)``; nil for none.
    mutating func send(_ outgoing: IRCOutgoing, _ ticket: UInt64?, now: Int64) -> [Action] {
        func fail(_ failure: IRCSendFailure) -> [Action] { ticket.map { [.failed($0, failure)] } ?? [] }
        guard isReady else { return fail(.offline) }
        guard let lines = lines(of: outgoing) else { return fail(.refused("The message is too long for IRC.")) }
        guard queuedLines + lines.count <= Self.lineLimit else { return fail(.offline) }
        queue.append(Job(ticket: ticket, target: fold(outgoing.nick), lines: lines))
        queuedLines += lines.count
        return pump(now: now)
    }

    private func lines(of outgoing: IRCOutgoing) -> Deque<ByteBuffer>? {
        let verb = outgoing.isNotice ? "NOTICE" : "PRIVMSG"
        let capacity = support.lineCapacity(
            verb: verb, target: outgoing.nick, nick: nick, sourceLength: sourceLength)
        func line(_ text: [UInt8], _ tag: String?) -> ByteBuffer {
            var buffer = ByteBuffer()
            if let tag, hasTags { buffer.writeTags([IRCTag(key: tag, value: "")]) }
            buffer.writeString("\(verb) \(outgoing.nick) :")
            buffer.writeBytes(text)
            buffer.writeString("\r\n")
            return buffer
        }
        switch outgoing.content {
        case .envelope(let bytes, let id):
            return Armour.split(bytes, id: id, capacity: capacity).map { Deque($0.map { line($0, "+pawl/encrypted") }) }
        case .text(let text, let announces):
            // An empty line cannot be sent, and a text is no CTCP query.
            let parts = text.utf8.filter { $0 != 1 }.split(separator: 0x0A).flatMap {
                LineBreaker.pieces(Array($0), room: capacity)
            }
            guard !parts.isEmpty, parts.count <= Armour.maximumFragments,
                !parts.contains(where: { Armour.hasMarker($0) })
            else { return nil }
            var lines = Deque(parts.dropLast().map { line($0, nil) })
            let last = parts[parts.count - 1]
            let isMarked = announces && !hasTags && last.count + Announcement.marker.count <= capacity
            lines.append(line(isMarked ? last + Announcement.marker : last, announces ? Announcement.tag : nil))
            return lines
        }
    }

    /// Writes what the pacer allows.
    private mutating func pump(now: Int64) -> [Action] {
        guard isReady else { return [] }
        var actions: [Action] = []
        while let next = queue.first?.lines.first {
            guard pacer.spend(next.readableBytes, now: now) else { return actions }
            actions.append(.write(next))
            queue[0].lines.removeFirst()
            queue[0].hasBegun = true
            queuedLines -= 1
            guard queue[0].lines.isEmpty else { continue }
            let job = queue.removeFirst()
            if let ticket = job.ticket { written.append((ticket, job.target)) }
        }
        let unasked = written.count - pings.reduce(0) { $0 + $1.count }
        if unasked > 0 { actions.append(ping(unasked, now: now)) }
        return actions
    }

    private mutating func ping(_ count: Int, now: Int64) -> Action {
        lastPing += 1
        pings.append((lastPing, now, count))
        let line = ByteBuffer(string: "PING :pawl-\(lastPing)\r\n")
        pacer.charge(line.readableBytes, now: now)
        return .write(line)
    }

    private mutating func confirm(_ token: String) -> [Action] {
        guard let place = pings.firstIndex(where: { token == "pawl-\($0.number)" }) else { return [] }
        var count = 0
        for _ in 0...place { count += pings.removeFirst().count }
        defer { written.removeFirst(count) }
        return written.prefix(count).map { .sent($0.ticket) }
    }

    /// Numerics by which servers refuse a message; the first parameter after the nick is its target.
    private static let sendErrors: Set<String> = [
        "401", "402", "403", "404", "406", "407", "408", "412", "413", "414", "415", "417", "477", "486", "487", "531",
        "716",
    ]

    /// The server has refused a message to a target: none that was written to it counts as sent.
    private mutating func failed(_ line: IRCLine, _ numeric: String) -> [Action] {
        let target = fold(line.text(1) ?? "")
        let words = line.parameters.last.map(line.string) ?? ""
        let failure: IRCSendFailure = numeric == "401" ? .offline : .refused(words)
        var actions: [Action] = []
        var place = 0
        // The PING that confirms a place confirms one less.
        var ends: [Int] = []
        var sum = 0
        for ping in pings {
            sum += ping.count
            ends.append(sum)
        }
        for entry in written {
            if entry.target == target {
                actions.append(.failed(entry.ticket, failure))
                if let index = ends.firstIndex(where: { place < $0 }) { pings[index].count -= 1 }
            }
            place += 1
        }
        written.removeAll { $0.target == target }
        if let job = queue.first, job.hasBegun, job.target == target {
            queue.removeFirst()
            queuedLines -= job.lines.count
            if let ticket = job.ticket { actions.append(.failed(ticket, failure)) }
        }
        return actions
    }

    // MARK: Time

    /// When ``wake(now:)`` is due at the latest, in nanoseconds.
    mutating func nextDeadline(now: Int64) -> Int64 {
        var deadlines = [pings.first.map { $0.at + Self.patience }, fragments.nextDeadline].compactMap(\.self)
        deadlines.append(isReady ? lastLine + Self.silence : started + Self.patience)
        if isReady, !queue.isEmpty { deadlines.append(pacer.nextSlot(now: now)) }
        return deadlines.min() ?? now + Self.silence
    }

    /// Time has passed.
    mutating func wake(now: Int64) -> [Action] {
        if case .ended = phase { return [] }
        _ = fragments.expire(now: now)
        if let ping = pings.first, ping.at + Self.patience <= now { return end() }
        guard isReady else { return started + Self.patience <= now ? end() : [] }
        var actions = pump(now: now)
        if lastLine + Self.silence <= now, pings.isEmpty { actions.append(ping(0, now: now)) }
        if lastLine + Self.silence <= now { lastLine = now }
        return actions
    }

    /// The connection is lost: what was not confirmed counts as not sent.
    mutating func closed() -> [Action] {
        phase = .ended
        let tickets = written.map(\.ticket) + queue.compactMap(\.ticket)
        (written, queue, pings, queuedLines) = ([], [], [], 0)
        return tickets.map { .failed($0, .offline) }
    }
}
