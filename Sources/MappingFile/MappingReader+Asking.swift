import JSONCodec
import JSONGateway
import NIOCore
import PawlConfiguration

/// Reads the gateway's own requests to the backend, and the form of its refusals.
extension MappingReader {
    static let accountKeys = ["credential", "ask", "name", "acting_as"]

    mutating func account(_ tree: ConfigurationTree) -> AccountSource? {
        guard let keys = map(tree, "`account`", Self.accountKeys, needs: ["credential", "ask", "name"]) else {
            return nil
        }
        let credentials = keys["credential"].map { self.credentials($0) } ?? []
        let target = keys["ask"].flatMap { self.target($0, "account.ask", "GET /me") }
        let name = keys["name"].flatMap { single($0, "account.name") }
        if let target, target.contains("{"), let line = keys["ask"]?.line {
            wrong("`account.ask`", line, "holds braces; the account of a credential does not depend on a conversation")
        }
        guard !credentials.isEmpty, let target, let name else { return nil }
        var source = AccountSource(credentials: credentials, target: target, name: name)
        source.actingAs = keys["acting_as"].flatMap { actingAs($0) }
        return source
    }

    private mutating func actingAs(_ tree: ConfigurationTree) -> String? {
        let expected = "`query NAME`, for example `query user_id`"
        guard let text = text(tree, "account.acting_as", expected) else { return nil }
        let words = text.split(separator: " ").map(String.init)
        guard words.count == 2, words[0] == "query",
            words[1].utf8.allSatisfy({ 0x21...0x7E ~= $0 && !"&=#;%+".utf8.contains($0) })
        else {
            wrong("`account.acting_as`", tree.line, "is \(quoted(text)); expected \(expected)")
            return nil
        }
        return words[1]
    }

    private mutating func credentials(_ tree: ConfigurationTree) -> [AccountSource.Credential] {
        let expected = "`header NAME`, `query NAME` or `cookie NAME`, for example `header Authorization`"
        return texts(tree, "account.credential", expected).compactMap { text, line in
            let words = text.split(separator: " ").map(String.init)
            if words.count == 2, words[1].utf8.allSatisfy({ 0x21...0x7E ~= $0 && !":;,=".utf8.contains($0) }) {
                switch words[0] {
                case "header": return .header(words[1])
                case "query": return .query(words[1])
                case "cookie": return .cookie(words[1])
                default: break
                }
            }
            wrong("`account.credential`", line, "is \(quoted(text)); expected \(expected)")
            return nil
        }
    }

    private mutating func target(_ tree: ConfigurationTree, _ place: String, _ example: String) -> String? {
        guard let text = text(tree, place, "a request, for example `\(example)`") else { return nil }
        let words = text.split(separator: " ")
        guard words.count == 2, words[0] == "GET", words[1].hasPrefix("/"),
            words[1].utf8.allSatisfy({ 0x21...0x7E ~= $0 && $0 != UInt8(ascii: "#") })
        else {
            wrong("`\(place)`", tree.line, "is \(quoted(text)); expected GET and a target, for example `\(example)`")
            return nil
        }
        return String(words[1])
    }

    static let memberKeys = ["ask", "accounts"]

    mutating func members(_ tree: ConfigurationTree) -> MembersSource? {
        guard let keys = map(tree, "`members`", Self.memberKeys, needs: Self.memberKeys) else { return nil }
        let example = "GET /conversations/{conversation}"
        let target = keys["ask"].flatMap { self.target($0, "members.ask", example) }
        if let target,
            target.split(separator: "{conversation}", omittingEmptySubsequences: false).count != 2
                || target.replacing("{conversation}", with: "").contains(where: { "{}".contains($0) })
        {
            wrong(
                "`members.ask`", keys["ask"]?.line ?? tree.line,
                "must name the conversation once, as {conversation}; for example `\(example)`")
            return nil
        }
        guard let accounts = keys["accounts"],
            var text = text(accounts, "members.accounts", "a path as `members[*]`, or `names of joined.*`")
        else { return nil }
        let areNames = text.hasPrefix("names of ")
        if areNames { text = String(text.dropFirst("names of ".count)) }
        guard let path = path(text, "members.accounts", accounts.line), let target else { return nil }
        return MembersSource(target: target, accounts: path, areNames: areNames)
    }

    static let refusalKeys = ["status", "content_type", "body", "frame"]

    mutating func refusal(_ tree: ConfigurationTree) -> RefusalForm? {
        guard let keys = map(tree, "`refusal`", Self.refusalKeys) else { return nil }
        var form = RefusalForm()
        if let tree = keys["status"], let status = number(tree, "refusal.status", 400...599, "403") {
            form.status = status
        }
        if let tree = keys["content_type"],
            let type = word(tree, "refusal.content_type", "a media type, for example `application/json`")
        {
            form.contentType = type
        }
        form.body = refusal(keys["body"], "refusal.body") ?? form.body
        form.frame = refusal(keys["frame"], "refusal.frame")
        return form
    }

    private mutating func refusal(_ tree: ConfigurationTree?, _ place: String) -> String? {
        guard let tree, let body = json(tree, place, #"{"error":"{reason}"}"#) else { return nil }
        if !body.contains("{reason}") {
            wrong("`\(place)`", tree.line, "has no {reason}; write it where the explanation belongs")
        }
        return body
    }

    static let corsKeys = ["origins", "credentials"]

    /// Reads which web pages may read the gateway's own answers.
    mutating func crossOrigin(_ tree: ConfigurationTree) -> CrossOrigin? {
        guard let keys = map(tree, "`cors`", Self.corsKeys, needs: ["origins"]), let origins = keys["origins"] else {
            return nil
        }
        let expected = "`\"*\"`, or origins as browsers send them, for example `[https://chat.example.org]`"
        var listed: Set<String> = []
        let all = texts(origins, "cors.origins", expected)
        for (text, line) in all where text != "*" {
            guard Self.isOrigin(text) else {
                wrong("`cors.origins`", line, "is \(quoted(text)); expected \(expected)")
                continue
            }
            listed.insert(text)
        }
        let credentials = keys["credentials"].map { flag($0, "cors.credentials") } ?? false
        let isAny = all.contains { $0.text == "*" }
        if isAny, !listed.isEmpty {
            wrong("`cors.origins`", origins.line, "has `*` beside others; write one or the other")
        }
        if isAny, credentials {
            wrong("`cors.credentials`", tree.line, "is true; browsers take that for listed origins only, not for `*`")
        }
        guard isAny || !listed.isEmpty else { return nil }
        return CrossOrigin(origins: isAny ? .any : .listed(listed), allowsCredentials: credentials)
    }

    /// `SCHEME://HOST` or `SCHEME://HOST:PORT`, without a path, in lower case. RFC 6454 section 6.2.
    private static func isOrigin(_ text: String) -> Bool {
        guard let mark = text.firstRange(of: "://"), mark.lowerBound > text.startIndex else { return false }
        let host = text[mark.upperBound...]
        return !host.isEmpty && text.utf8.allSatisfy { 0x21...0x7E ~= $0 && !(0x41...0x5A ~= $0) }
            && !host.contains { "/?#@*".contains($0) }
    }

    mutating func flag(_ tree: ConfigurationTree, _ place: String) -> Bool {
        guard let text = text(tree, place, "true or false") else { return false }
        if text != "true", text != "false" {
            wrong("`\(place)`", tree.line, "is \(quoted(text)); expected true or false")
        }
        return text == "true"
    }

    mutating func number(_ tree: ConfigurationTree, _ place: String, _ range: ClosedRange<Int>, _ example: String)
        -> Int?
    {
        let expected = "a number from \(range.lowerBound) to \(range.upperBound), for example `\(example)`"
        guard let text = text(tree, place, expected) else { return nil }
        guard let number = Int(text), range ~= number else {
            wrong("`\(place)`", tree.line, "is \(quoted(text)); expected \(expected)")
            return nil
        }
        return number
    }

    /// Reads JSON whose strings may have names in braces.
    mutating func json(_ tree: ConfigurationTree, _ place: String, _ example: String) -> String? {
        let expected = "JSON in single quotes, for example `'\(example)'`"
        guard let text = text(tree, place, expected) else { return nil }
        guard (try? JSONDocument(ByteBuffer(string: text))) != nil else {
            wrong("`\(place)`", tree.line, "is \(quoted(text)), which is no JSON; expected \(expected)")
            return nil
        }
        return text
    }
}
