// CAP on both sides of the gateway. Upstream the gateway may request more than the client did. Downstream it offers some
// capabilities of its own, and hides those that do not work behind a gateway.
//
// Under `hosted` and above the gateway requests the capabilities that it needs before the client may register, and
// translates down to what the client requested. It hides capabilities that it cannot translate.

import DequeModule
package import IRCCodec

/// The capability that marks a client which can encrypt.
package enum PawlCapability {
    package static let name = "pawl/e2ee"
    /// The client-only tag sent with an envelope if the backend has tags.
    package static let tag = "+pawl/encrypted"
}

/// The capability negotiation of one connection. It consumes and produces lines; the connection sends them.
package struct CapabilityNegotiation: Sendable {
    /// Capabilities that the gateway requests under `hosted` and above if the backend offers them.
    package static let wanted = [
        "message-tags", "server-time", "batch", "labeled-response", "echo-message", "account-tag", "extended-join",
    ]

    private enum Pending: Sendable, Equatable {
        case clientLS
        case clientList
        case clientRequest(original: [String], forwarded: [String])
        case gatewayLS
        case gatewayRequest([String])
        /// An answer of the gateway that waits for earlier ones.
        case answer(String)
    }

    /// The stage of the gateway's own negotiation.
    package enum Stage: Sendable, Equatable {
        case notStarted, listing, requesting, done
    }

    package var visibility = Visibility()
    /// Whether this program is a sidecar, which requests ``PawlCapability`` from a gateway in front of the backend.
    package var isCapable = false
    /// The client's capabilities.
    package private(set) var client: Set<String> = [] {
        didSet { isTranslating = upstream != client }
    }
    /// The capabilities that the backend has acknowledged for this connection.
    package private(set) var upstream: Set<String> = [] {
        didSet { isTranslating = upstream != client }
    }
    /// Whether the client's capabilities differ from those upstream. Stored, because it is read for every line.
    package private(set) var isTranslating = false
    /// Whether the client has requested ``PawlCapability``.
    package private(set) var clientAsked = false
    package private(set) var stage = Stage.notStarted
    /// Whether the backend answers CAP; nil until that is known.
    package private(set) var backendKnowsCAP: Bool?
    private var clientVersion = 0
    /// Whether the client was sent a list, and whether ``MultilineLimits/capability`` was in it.
    private var listed = (any: false, multiline: false)
    /// The client's capabilities, requested again after an outage of the backend.
    private var alsoWanted: Set<String> = []
    private var offered: Set<String> = []
    /// The number of CAP LS commands that were given up. Late answers to them are dropped.
    package private(set) var lateLists = 0
    /// Whether a negotiation was given up without CAP END, for which the backend may still be waiting.
    package var owesEnd = false
    private var pending: Deque<Pending> = []
    /// Whether the gateway's own negotiation comes before commands of the client, which wait in the lane for the end of an
    /// outage.
    private var comesFirst = false
    /// The position in the outbound lane behind which the client's lines wait for the gateway's own negotiation.
    private var held: OutboundLane.Ticket?
    /// The time at which the wait for an answer to CAP ends; nil if none is awaited.
    private(set) var deadline: Int64?
    /// The server name of the backend, for answers of the gateway.
    package var serverName = "pawl"
    /// The client's nick, or `*` before it has one.
    package var nick = "*"

    package init() {}

    package func has(_ capability: String) -> Bool { upstream.contains(capability) }
    package func clientHas(_ capability: String) -> Bool { client.contains(capability) }

    /// Whether the gateway, not the backend, takes this client's messages of several lines.
    package var ownsMultiline: Bool {
        let name = MultilineLimits.capability
        return client.contains(name) && (visibility.multiline != nil || !upstream.contains(name))
    }

    /// Whether the client is shown messages of several lines as one.
    var showsMultiline: Bool { client.contains(MultilineLimits.capability) && client.contains("batch") }

    // MARK: The gateway's own capabilities

    /// The capabilities of the gateway itself, as CAP LS lists them. A batch of lines needs `batch` as well.
    private mutating func ownTokens() -> [String] {
        listed.any = true
        // Its value is required, so it is not for clients that are shown none.
        guard let multiline = visibility.multiline, clientVersion >= 302 else { return [PawlCapability.name] }
        listed.multiline = true
        return [multiline.token] + (offered.contains("batch") ? [] : ["batch"]) + [PawlCapability.name]
    }

    /// Whether the gateway answers for a capability, in place of the backend.
    private func isOwn(_ name: String) -> Bool {
        switch name {
        case PawlCapability.name: true
        case MultilineLimits.capability: visibility.multiline != nil || ownsMultiline
        case "batch": isListKnown && !offered.contains("batch") && (visibility.multiline != nil || ownsMultiline)
        default: false
        }
    }

    private var isListKnown: Bool { backendKnowsCAP == false || stage == .requesting || stage == .done }

    /// The line that offers what the client's policy has brought since it was sent a list; nil if there is nothing.
    mutating func lateOffer() -> String? {
        guard visibility.multiline != nil, listed.any, !listed.multiline, clientVersion >= 302 else { return nil }
        return reply("NEW", ownTokens().filter { $0 != PawlCapability.name })
    }

    private static let withTags: Set = ["server-time", "message-tags", "account-tag", "labeled-response", "batch"]
    /// Whether the client can be shown any tag.
    var clientHasTags: Bool { !client.isDisjoint(with: Self.withTags) }

    // MARK: From the client

    /// What to do with a CAP line of the client.
    package enum ClientOutcome: Equatable, Sendable {
        /// Forward the line unchanged.
        case forward
        /// Forward this line instead.
        case replace(String)
        /// Forward nothing.
        case consumed
    }

    /// Handles a CAP line of the client. Appends the gateway's answers to `answers`, without CR LF.
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
            if isOwn(bare) { continue }
            // Capabilities that the gateway needs stay enabled upstream; only the client loses them.
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
            clientVersion = max(clientVersion, Int(line.text(1) ?? "") ?? 301)
            pending.append(.answer(reply("LS", ownTokens())))
        case "LIST":
            pending.append(.answer(reply("LIST", listForClient)))
        case "REQ":
            let original = names(line.text(1))
            let known = original.allSatisfy { isOwn($0.hasPrefix("-") ? String($0.dropFirst()) : $0) }
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

    /// Handles a CAP line of the backend. Appends lines for the client and for the backend, without CR LF.
    ///
    /// - Returns: whether to forward the line unchanged.
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
        let own = ownTokens()
        let whole = head + ":" + (shown + own).joined(separator: " ")
        if whole.utf8.count + 2 > IRCLimits.lineLength, clientVersion >= 302 {
            answers.append(head + "* :" + shown.joined(separator: " "))
            answers.append(head + ":" + own.joined(separator: " "))
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
            client.subtract(bare.filter { !isOwn($0) })
            offered.subtract(bare)
            upstream.subtract(bare)
        }
        guard client.contains("cap-notify") else { return false }
        let shown = subcommand == "NEW" ? list.compactMap(visible) : bare.filter(isVisible)
        guard !shown.isEmpty else { return false }
        guard shown != list else { return true }
        answers.append(reply(subcommand, shown))
        return false
    }

    /// Handles the refusal of a CAP command by a backend without CAP (421, or 451 before registration).
    ///
    /// - Returns: whether the refusal answers a CAP command of the gateway or of the client, and is not forwarded.
    package mutating func backendRefusedCAP(answers: inout [String]) -> Bool {
        guard backendKnowsCAP != true, let first = pending.first else { return false }
        defer { flushAnswers(&answers) }
        switch first {
        case .clientLS: answers.append(reply("LS", ownTokens()))
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

    /// Resets the upstream side after the backend was lost. The client keeps its capabilities.
    ///
    /// - Parameter isAgain: whether it was lost before, so that commands of the client wait in the lane.
    package mutating func restart(isAgain: Bool = false) {
        alsoWanted = client.subtracting(["cap-notify", MultilineLimits.capability]).union(["sasl"])
        upstream = []
        offered = []
        pending.removeAll { entry in
            switch entry {
            case .gatewayLS, .gatewayRequest: true
            case .clientLS, .clientList, .clientRequest, .answer: !isAgain
            }
        }
        lateLists = 0
        owesEnd = false
        stage = .notStarted
        backendKnowsCAP = nil
        deadline = nil
    }

    /// Ours: how long an answer to CAP may take, in nanoseconds.
    private static let patience: Int64 = 5_000_000_000

    /// An answer to CAP is awaited from now on.
    mutating func expectAnswer(now: Int64) { deadline = deadline ?? now + Self.patience }

    /// Whether the answer has not come in time.
    func isOverdue(now: Int64) -> Bool { deadline.map { $0 <= now } ?? false }

    /// No answer is awaited any more.
    mutating func endWait() { deadline = nil }

    /// The client's lines wait behind this position: it registers when the gateway has its capabilities, or knows that
    /// the backend does not have them.
    mutating func hold(at ticket: OutboundLane.Ticket) { held = ticket }

    /// The client's lines wait no longer.
    ///
    /// - Returns: the position to resolve; nil if they did not wait.
    mutating func release() -> OutboundLane.Ticket? {
        guard let ticket = held else { return nil }
        held = nil
        deadline = nil
        return ticket
    }

    /// Begins the gateway's own negotiation; returns the line to send, or nil if there is none.
    ///
    /// - Parameter comesFirst: whether commands of the client that are not answered yet reach the backend later.
    package mutating func begin(first comesFirst: Bool = false) -> String? {
        guard stage == .notStarted, backendKnowsCAP != false else {
            if stage == .notStarted { stage = .done }
            return nil
        }
        stage = .listing
        self.comesFirst = comesFirst
        if comesFirst { pending.prepend(.gatewayLS) } else { pending.append(.gatewayLS) }
        upstream.insert("cap-notify")
        return "CAP LS 302"
    }

    /// Whether a CAP command waits for a backend that has never answered CAP.
    package var awaitsFirstAnswer: Bool {
        guard backendKnowsCAP == nil, let first = pending.first else { return false }
        if case .answer = first { return false }
        return true
    }

    /// Stops waiting for a backend that does not answer CAP, and answers the client's commands without it.
    ///
    /// Some servers ignore unknown commands before registration.
    package mutating func giveUp(answers: inout [String]) {
        deadline = nil
        if stage == .listing || stage == .requesting { stage = .done }
        owesEnd = awaitsFirstAnswer
        while awaitsFirstAnswer {
            if pending.first == .clientLS || pending.first == .gatewayLS { lateLists += 1 }
            switch pending.removeFirst() {
            case .clientLS: answers.append(reply("LS", ownTokens()))
            case .clientList: answers.append(reply("LIST", listForClient))
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
        // Without labels an echo cannot be distinguished from a message to oneself.
        if !offered.contains("labeled-response") || !offered.contains("batch") {
            names.removeAll { $0 == "echo-message" || $0 == "labeled-response" }
        }
        guard !names.isEmpty else {
            stage = .done
            return
        }
        stage = .requesting
        // Held commands of the client reach the backend after this one.
        let isFirst = held != nil || comesFirst
        if isFirst { pending.prepend(.gatewayRequest(names)) } else { pending.append(.gatewayRequest(names)) }
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
