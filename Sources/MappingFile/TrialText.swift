package import JSONGateway

extension Mapping {
    /// Describes a mapping.
    package var summary: String {
        var counts: [(String, Int)] = []
        for label in Label.allCases {
            let count = routes.count { $0.label == label }
            if count > 0 { counts.append((label.rawValue, count)) }
        }
        let words = counts.map { "\($0.1) \($0.0)" }.joined(separator: ", ")
        let frameWords = frames.isEmpty ? "no kinds of frames" : "\(frames.count) kinds of frames"
        let longest = (routes.compactMap(\.request) + frames.flatMap(\.shapes)).compactMap(\.longestText).min()
        let limit = longest.map { " Sealed texts of up to \($0) bytes fit into your backend." } ?? ""
        return "The mapping `\(name)` is well formed: \(routes.count) routes (\(words)), \(frameWords)." + limit
            + withoutSender
    }

    /// A warning if messages of the backend name no sender; empty if all do.
    private var withoutSender: String {
        func isWithout(_ shapes: [MessageShape]) -> Bool { shapes.contains { $0.sender == nil } }
        let routes = routes.count { isWithout($0.response) }
        let frames = frames.count { $0.direction == .fromBackend && isWithout($0.shapes) }
        guard routes + frames > 0 else { return "" }
        return " Messages without `sender`: in the answers of \(routes) routes, in \(frames) kinds of frames."
            + " The gateway does not check who has written these."
    }
}

extension MappingTrial: CustomStringConvertible {
    /// The trial as text, for a terminal.
    package var description: String {
        var lines = [sample.prefix(1).uppercased() + sample.dropFirst()]
        func line(_ name: String, _ value: String?) {
            guard let value else { return }
            lines.append("  " + name + String(repeating: " ", count: max(1, 16 - name.count)) + value)
        }
        line("fits", route ?? "nothing")
        for reason in reasons { line("because", reason) }
        line("label", label)
        line("login", login.isEmpty ? nil : login.joined(separator: ", "))
        for (name, value) in captures.sorted(by: { $0.key < $1.key }) { line("{\(name)}", value) }
        line("conversation", conversation)
        line("local id", localID)
        line("remote id", remoteID)
        if !references.isEmpty { line("references", references.joined(separator: ", ")) }
        if let members {
            line("members", "\(members.count): " + members.prefix(Self.shownMembers).joined(separator: ", "))
        }
        line("next page", nextPage)
        for (index, message) in messages.prefix(Self.shownMessages).enumerated() {
            lines.append("  message \(index + 1) of \(messages.count)")
            line("  conversation", message.conversation)
            line(
                "  sender",
                message.sender ?? (isReceived ? "not named by the mapping, so nobody checks who has written it" : nil))
            line("  recipients", message.recipients?.joined(separator: ", "))
            line("  local id", message.localID)
            line("  remote id", message.remoteID)
            line("  text", message.text)
            line("  longest text", message.longestText.map { "\($0) bytes, which your backend accepts when sealed" })
            line(
                isReceived ? "  can be sealed" : "  is sealed",
                message.isFlagged || message.mayBeEnvelope ? nil : message.sealed)
            if message.isFlagged { line("  flag", "says that it is encrypted") }
            if message.mayBeEnvelope { line("  envelope", "may be one") }
        }
        for fault in faults { line("WRONG", fault) }
        if !paths.isEmpty { lines.append("  paths") }
        lines += paths.map { "    " + $0 }
        if !outcomes.isEmpty { lines.append("  under each policy") }
        for outcome in outcomes {
            line("  " + outcome.policy, outcome.words)
            if let body = outcome.body { lines.append("                  " + body) }
        }
        return lines.joined(separator: "\n")
    }

    /// Ours: messages that are shown; more of one kind add nothing.
    private static let shownMessages = 5
    /// Ours: members that are shown.
    private static let shownMembers = 20
}
