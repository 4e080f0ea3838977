// CAP on both sides of the gateway. Upstream it may ask for more than the client did; downstream it shows one
// capability more than the backend has, and hides what would not be true here.

import DequeModule
package import IRCCodec

/// The capability that marks a client which can encrypt.
package enum PawlCapability {
    package static let name = "pawl/e2ee"
    /// The client-only tag that goes with an envelope where tags are.
    package static let tag = "+pawl/encrypted"
}

/// The state of capability negotiation for one connection. It makes lines and consumes lines; who sends them is the
/// session's business.
package struct CapabilityNegotiation: Sendable {
    /// Capabilities that the gateway asks for under `hosted` and above, where they are offered.
    package static let wanted = [
        "message-tags", "server-time", "batch", "labeled-response", "echo-message", "account-tag", "extended-join",
    ]

    private enum Pending: Sendable, Equatable {
        case clientLS
        case clientList
        case clientRequest(original: [String], forwarded: [String])
        case gatewayLS
        case gatewayRequest([String])
        /// An answer of ours that waits for its turn.
        case answer(String)
    }

    /// Where the gateway's own negotiation stands.
    package enum Stage: Sendable, Equatable {
        case notStarted, listing, requesting, done
    }

    package var visibility = Visibility()
    /// Whether this program can encrypt by itself, and says so to a gateway in front of the backend.
    package var isCapable = false
    /// What the client has.
    package private(set) var client: Set<String> = [] {
        didSet { isTranslating = upstream != client }
    }
    /// What the backend has given to this connection.
    package private(set) var upstream: Set<String> = [] {
        didSet { isTranslating = upstream != client }
    }
    /// Whether the client's view differs from what the backend sends. Asked for every line, so it is kept.
    package private(set) var isTranslating = false
    /// Whether the client has asked for ``PawlCapability``.
    package private(set) var clientAsked = false
    package private(set) var stage = Stage.notStarted
    /// Whether the backend answers CAP; unknown until it has been asked.
    package private(set) var backendKnowsCAP: Bool?
    private var clientVersion = 0
    /// What a backend that comes back is asked for besides: what the client has.
    private var alsoWanted: Set<String> = []
    private var offered: Set<String> = []
    /// Questions that were given up: their answers may still come, and are nobody's any more.
    package private(set) var lateLists = 0
    /// Whether the backend waits for an end of the negotiation that it was not told when it was given up.
    package var owesEnd = false
    private var pending: Deque<Pending> = []
    /// Whether the client's lines wait until the gateway's own negotiation is done.
    package var holdsClient = false
    /// The name by which the backend calls itself, for answers of ours.
    package var serverName = "pawl"
    /// The client's nick, or `*` before it has one.
    package var nick = "*"

    package init() {}

    package func has(_ capability: String) -> Bool { upstream.contains(capability) }
    package func clientHas(_ capability: String) -> Bool { client.contains(capability) }

    private static let withTags: Set = ["server-time", "message-tags", "account-tag", "labeled-response", "batch"]
    /// Whether the client can be shown any tag.
    var clientHasTags: Bool { !client.isDisjoint(with: Self.withTags) }

    // MARK: From the client

    /// What to do with a CAP line of the client.
    package enum ClientOutcome: Equatable, Sendable {
        /// Forward the line as it came.
        case forward
        /// Forward this instead.
        case replace(String)
        /// Nothing goes upstream.
        case consumed
    }

    /// Takes a CAP line of the client; answers of ours are appended to `answers`, without CR LF.
    package mutating func fromClient(_ line: IRCLine, answers: inout [String]) -> ClientOutcome {
        defer { flushAnswers(&answers) }
        let subcommand = (line.text(0) ?? "").uppercased()
        if backendKnowsCAP == false { return fromClientWithoutBackend(subcommand, line) }
        switch subcommand {
        case "LS":
            clientVersion = max(clientVersion, Int(line.text(1) ?? "") ?? 301)
            if clientVersion >= 302 { client.insert("cap-notify") }
            if clientVersion >= 302 { upstream.insert("cap-notify") }
            pending.append(.clientLS)
            return .forward
        case "LIST":
            guard isTranslating else {
                pending.append(.clientList)
                return .forward
            }
            pending.append(.answer(reply("LIST", listForClient)))
            return .consumed
        case "REQ":
            return request(names(line.text(1)))
        default:
            return .forward
        }
    }

    private var listForClient: [String] {
        client.filter { $0 != "cap-notify" }.sorted() + (clientAsked ? [PawlCapability.name] : [])
    }

    private mutating func request(_ original: [String]) -> ClientOutcome {
        var forwarded: [String] = []
        for name in original {
            let bare = name.hasPrefix("-") ? String(name.dropFirst()) : name
            if bare == PawlCapability.name { continue }
            // What the gateway needs stays on upstream; only the client's view loses it.
            if name.hasPrefix("-"), stage == .done, Self.wanted.contains(bare), upstream.contains(bare) { continue }
            guard isVisible(bare) else {
                pending.append(.answer(reply("NAK", original)))
                return .consumed
            }
            forwarded.append(name)
        }
        if forwarded == original, !original.isEmpty {
            pending.append(.clientRequest(original: original, forwarded: forwarded))
            return .forward
        }
        guard !forwarded.isEmpty else {
            guard !original.isEmpty else { return .forward }
            apply(original)
            pending.append(.answer(reply("ACK", original)))
            return .consumed
        }
        pending.append(.clientRequest(original: original, forwarded: forwarded))
        return .replace("CAP REQ :" + forwarded.joined(separator: " "))
    }

    private mutating func fromClientWithoutBackend(_ subcommand: String, _ line: IRCLine) -> ClientOutcome {
        switch subcommand {
        case "LS":
            pending.append(.answer(reply("LS", [PawlCapability.name])))
        case "LIST":
            pending.append(.answer(reply("LIST", clientAsked ? [PawlCapability.name] : [])))
        case "REQ":
            let original = names(line.text(1))
            let known = original.allSatisfy { $0 == PawlCapability.name || $0 == "-" + PawlCapability.name }
            if known { apply(original) }
            pending.append(.answer(reply(known ? "ACK" : "NAK", original)))
        case "END":
            break
        default:
            return .forward
        }
        return .consumed
    }

    // MARK: From the backend

    /// Takes a CAP line of the backend; lines for the client and for the backend are appended, without CR LF.
    ///
    /// - Returns: whether the line is to be passed on as it came.
    package mutating func fromBackend(_ line: IRCLine, answers: inout [String], requests: inout [String]) -> Bool {
        defer { flushAnswers(&answers) }
        backendKnowsCAP = true
        let parameters = line.parameters.map(line.string)
        guard parameters.count >= 2 else { return true }
        let continues = parameters.count >= 4 && parameters[2] == "*"
        let list = names(parameters.last)
        switch parameters[1].uppercased() {
        case "LS": return listed(list, continues: continues, parameters[0], &answers, &requests)
        case "ACK", "NAK": return acknowledged(parameters[1].uppercased() == "ACK", list, &answers)
        case "NEW", "DEL": return changed(parameters[1].uppercased(), list, &answers)
        case "LIST":
            guard case .clientList = pending.first else { return true }
            guard !continues else { return true }
            pending.removeFirst()
            guard clientAsked else { return true }
            answers.append(reply("LIST", list + [PawlCapability.name]))
            return false
        default: return true
        }
    }

    private mutating func listed(
        _ list: [String], continues: Bool, _ target: String, _ answers: inout [String], _ requests: inout [String]
    ) -> Bool {
        offered.formUnion(list.map(bareName))
        if lateLists > 0 {
            guard !continues else { return false }
            lateLists -= 1
            if stage == .done, owesEnd { requestWanted(&requests) }
            return false
        }
        if case .gatewayLS = pending.first {
            guard !continues else { return false }
            pending.removeFirst()
            requestWanted(&requests)
            return false
        }
        guard case .clientLS = pending.first else { return true }
        let shown = list.compactMap(visible)
        let head = ":\(serverName) CAP \(target) LS "
        if continues {
            answers.append(head + "* :" + shown.joined(separator: " "))
            return false
        }
        pending.removeFirst()
        let whole = head + ":" + (shown + [PawlCapability.name]).joined(separator: " ")
        if whole.utf8.count + 2 > IRCLimits.lineLength, clientVersion >= 302 {
            answers.append(head + "* :" + shown.joined(separator: " "))
            answers.append(head + ":" + PawlCapability.name)
        } else {
            answers.append(whole)
        }
        return false
    }

    private mutating func acknowledged(_ accepted: Bool, _ list: [String], _ answers: inout [String]) -> Bool {
        switch pending.first {
        case .gatewayRequest(let wanted):
            pending.removeFirst()
            if accepted { upstream.formUnion(wanted) }
            stage = .done
            return false
        case .clientRequest(let original, let forwarded):
            pending.removeFirst()
            if accepted {
                for name in forwarded {
                    if name.hasPrefix("-") { upstream.remove(String(name.dropFirst())) } else { upstream.insert(name) }
                }
                apply(original)
            }
            guard original != forwarded else { return true }
            answers.append(reply(accepted ? "ACK" : "NAK", original))
            return false
        default:
            return true
        }
    }

    private mutating func changed(_ subcommand: String, _ list: [String], _ answers: inout [String]) -> Bool {
        let bare = list.map(bareName)
        if subcommand == "NEW" {
            offered.formUnion(bare)
        } else {
            offered.subtract(bare)
            upstream.subtract(bare)
            client.subtract(bare)
        }
        guard client.contains("cap-notify") else { return false }
        let shown = subcommand == "NEW" ? list.compactMap(visible) : bare.filter(isVisible)
        guard !shown.isEmpty else { return false }
        guard shown != list else { return true }
        answers.append(reply(subcommand, shown))
        return false
    }

    /// Takes the refusal of a CAP command by a backend that does not know CAP (421, or 451 before registration).
    ///
    /// - Returns: whether the refusal answers a command of ours or of the client's negotiation, and is not passed on.
    package mutating func backendRefusedCAP(answers: inout [String]) -> Bool {
        guard backendKnowsCAP != true, let first = pending.first else { return false }
        defer { flushAnswers(&answers) }
        switch first {
        case .clientLS: answers.append(reply("LS", [PawlCapability.name]))
        case .clientList: answers.append(reply("LIST", []))
        case .clientRequest(let original, _): answers.append(reply("NAK", original))
        case .gatewayLS, .gatewayRequest: stage = .done
        case .answer: return false
        }
        pending.removeFirst()
        backendKnowsCAP = false
        client.remove("cap-notify")
        upstream.remove("cap-notify")
        return true
    }

    // MARK: The gateway's own negotiation

    /// Forgets what a backend that has gone had given; what the client has stays.
    package mutating func restart() {
        alsoWanted = client.subtracting(["cap-notify"]).union(["sasl"])
        upstream = []
        offered = []
        pending = []
        lateLists = 0
        owesEnd = false
        stage = .notStarted
        backendKnowsCAP = nil
    }

    /// Begins to ask for what the gateway needs; gives the line to send, if there is one to send.
    package mutating func begin() -> String? {
        guard stage == .notStarted, backendKnowsCAP != false else {
            if stage == .notStarted { stage = .done }
            return nil
        }
        stage = .listing
        pending.append(.gatewayLS)
        upstream.insert("cap-notify")
        return "CAP LS 302"
    }

    /// Whether the client waits for an answer of a backend that has never answered CAP.
    package var awaitsFirstAnswer: Bool {
        guard backendKnowsCAP == nil, let first = pending.first else { return false }
        if case .answer = first { return false }
        return true
    }

    /// Takes the silence of a backend for what it is: some ignore commands that they do not know before registration.
    /// The client's questions are answered without it.
    package mutating func giveUp(answers: inout [String]) {
        if stage == .listing || stage == .requesting { stage = .done }
        owesEnd = awaitsFirstAnswer
        while awaitsFirstAnswer {
            if pending.first == .clientLS || pending.first == .gatewayLS { lateLists += 1 }
            switch pending.removeFirst() {
            case .clientLS: answers.append(reply("LS", [PawlCapability.name]))
            case .clientList: answers.append(reply("LIST", clientAsked ? [PawlCapability.name] : []))
            case .clientRequest(let original, _): answers.append(reply("NAK", original))
            case .gatewayLS, .gatewayRequest, .answer: break
            }
        }
        backendKnowsCAP = backendKnowsCAP ?? false
        flushAnswers(&answers)
    }

    private mutating func requestWanted(_ requests: inout [String]) {
        let all = Self.wanted + (isCapable ? [PawlCapability.name] : []) + alsoWanted.subtracting(Self.wanted).sorted()
        var names = all.filter { offered.contains($0) && !upstream.contains($0) }
        // Echoes can only be told from messages to oneself where they carry a label.
        if !offered.contains("labeled-response") || !offered.contains("batch") {
            names.removeAll { $0 == "echo-message" || $0 == "labeled-response" }
        }
        guard !names.isEmpty else {
            stage = .done
            return
        }
        stage = .requesting
        // Commands of the client that are held back reach the backend after this one.
        if holdsClient { pending.prepend(.gatewayRequest(names)) } else { pending.append(.gatewayRequest(names)) }
        requests.append("CAP REQ :" + names.joined(separator: " "))
    }

    // MARK: Helpers

    private mutating func apply(_ names: [String]) {
        for name in names {
            if name.hasPrefix("-") {
                let bare = String(name.dropFirst())
                if bare == PawlCapability.name { clientAsked = false } else { client.remove(bare) }
            } else if name == PawlCapability.name {
                clientAsked = true
            } else {
                client.insert(name)
            }
        }
    }

    private func reply(_ subcommand: String, _ names: [String]) -> String {
        ":\(serverName) CAP \(nick) \(subcommand) :" + names.joined(separator: " ")
    }

    private mutating func flushAnswers(_ answers: inout [String]) {
        while case .answer(let line) = pending.first {
            answers.append(line)
            pending.removeFirst()
        }
    }

    private func names(_ text: String?) -> [String] {
        (text ?? "").split(separator: " ").map(String.init)
    }

    func bareName(_ token: String) -> String {
        String(token.prefix { $0 != "=" })
    }

    package func value(_ token: String) -> Substring {
        token.firstIndex(of: "=").map { token[token.index(after: $0)...] } ?? ""
    }
}
