import HTTPCodec
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

    private mutating func actingAs(_ tree: ConfigurationTree) -> String? { queryName(tree, "account.acting_as") }

    /// Reads the place of a value in the query.
    mutating func queryName(_ tree: ConfigurationTree, _ place: String) -> String? {
        let expected = "`query NAME`, for example `query user_id`"
        guard let text = text(tree, place, expected) else { return nil }
        let words = text.split(separator: " ").map(String.init)
        guard words.count == 2, words[0] == "query",
            words[1].utf8.allSatisfy({ 0x21...0x7E ~= $0 && !"&=#;%+".utf8.contains($0) })
        else {
            wrong("`\(place)`", tree.line, "is \(quoted(text)); expected \(expected)")
            return nil
        }
        return words[1]
    }

    private mutating func credentials(_ tree: ConfigurationTree) -> [AccountSource.Credential] {
        let expected = "`header NAME`, `query NAME` or `cookie NAME`, for example `header Authorization`"
        var places: [AccountSource.Credential] = []
        for (text, line) in texts(tree, "account.credential", expected) {
            guard let place = AccountSource.Credential(text) else {
                wrong("`account.credential`", line, "is \(quoted(text)); expected \(expected)")
                continue
            }
            guard !places.contains(where: place.isSamePlace) else {
                wrong("`account.credential`", line, "has \(quoted(text)) twice; name each place once", code: .conflict)
                continue
            }
            places.append(place)
        }
        return places
    }

    mutating func target(_ tree: ConfigurationTree, _ place: String, _ example: String) -> String? {
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

    /// Reads a target that names something once, by a name in braces.
    private mutating func target(
        _ tree: ConfigurationTree, _ place: String, naming what: String, _ name: String, _ example: String
    ) -> String? {
        guard let target = target(tree, place, example) else { return nil }
        guard target.split(separator: "{\(name)}", omittingEmptySubsequences: false).count == 2,
            !target.replacing("{\(name)}", with: "").contains(where: { "{}".contains($0) })
        else {
            wrong(
                "`\(place)`", tree.line, "must name the \(what) once, as {\(name)}; for example `\(example)`")
            return nil
        }
        return target
    }

    static let memberKeys = ["ask", "accounts", "page"]

    mutating func members(_ tree: ConfigurationTree) -> MembersSource? {
        guard let keys = map(tree, "`members`", Self.memberKeys, needs: ["ask", "accounts"]) else { return nil }
        let example = "GET /conversations/{conversation}"
        let target = keys["ask"].flatMap {
            self.target($0, "members.ask", naming: "conversation", "conversation", example)
        }
        guard let accounts = keys["accounts"],
            var text = text(accounts, "members.accounts", "a path as `members[*]`, or `names of joined.*`")
        else { return nil }
        let areNames = text.hasPrefix("names of ")
        if areNames { text = String(text.dropFirst("names of ".count)) }
        let paging = keys["page"].flatMap { self.paging($0) }
        guard let path = path(text, "members.accounts", accounts.line), let target else { return nil }
        var source = MembersSource(target: target, accounts: path, areNames: areNames)
        source.paging = paging
        return source
    }

    static let pageKeys = ["query", "first", "next", "last"]

    /// Reads how the members come in pages: a query, or a map with one.
    private mutating func paging(_ tree: ConfigurationTree) -> MemberPaging? {
        var keys = ["query": tree]
        if case .map = tree.value {
            guard let found = map(tree, "`members.page`", Self.pageKeys, needs: ["query"]) else { return nil }
            keys = found
        }
        let expected =
            "a query with {page}, {offset}, {cursor} or {last} in it once, for example `page={page}&per_page=200`"
        guard let query = keys["query"].flatMap({ word($0, "members.page", expected) }) else { return nil }
        let names = ["{page}", "{offset}", "{cursor}", "{last}"].filter { query.contains($0) }
        guard names.count == 1, query.split(separator: "{").count == 2, !query.contains("?"), !query.contains("#")
        else {
            wrong("`members.page`", tree.line, "is \(quoted(query)); expected \(expected)")
            return nil
        }
        for (key, name) in [("first", "{page}"), ("next", "{cursor}"), ("last", "{last}")]
        where keys[key] != nil && names != [name] {
            wrong("`members.page.\(key)`", tree.line, "has a meaning with \(name) only", code: .conflict)
        }
        switch names[0] {
        case "{page}":
            let first = keys["first"].flatMap { number($0, "members.page.first", 0...1, "1") } ?? 0
            return MemberPaging(query: query, order: .number(first: first))
        case "{offset}": return MemberPaging(query: query, order: .offset)
        case "{last}":
            let last = keys["last"].map { path($0, "members.page.last") }
            return MemberPaging(query: query, order: .last(last ?? nil))
        default:
            guard let next = keys["next"] else {
                wrong(
                    "`members.page`", tree.line,
                    "has no `next`, the path of the next cursor in an answer; write `{query: \"\(query)\", next: PATH}`",
                    code: .conflict)
                return nil
            }
            return single(next, "members.page.next").map { MemberPaging(query: query, order: .cursor($0)) }
        }
    }

    mutating func messagesByID(_ tree: ConfigurationTree) -> MessageSource? {
        lookup(tree, "messages_by_id", of: "message", "message_id", "GET /messages/{message_id}", "conversation")
            .map { MessageSource(target: $0.target, conversation: $0.path) }
    }

    mutating func conversationsByID(_ tree: ConfigurationTree) -> ConversationSource? {
        lookup(
            tree, "conversations_by_id", of: "conversation", "conversation", "GET /conversations/{conversation}", "id"
        ).map { ConversationSource(target: $0.target, id: $0.path) }
    }

    /// Reads a lookup by id: `ask`, and a key with the path of what is looked for.
    ///
    /// - Parameters:
    ///   - what: has the id, which `ask` contains under the name after it; then an example of `ask`.
    ///   - found: the key of the path.
    private mutating func lookup(
        _ tree: ConfigurationTree, _ place: String, of what: String, _ name: String, _ example: String, _ found: String
    ) -> (target: String, path: JSONPath)? {
        guard let keys = map(tree, "`\(place)`", ["ask", found], needs: ["ask", found]) else { return nil }
        let target = keys["ask"].flatMap { self.target($0, "\(place).ask", naming: what, name, example) }
        let path = keys[found].flatMap { single($0, "\(place).\(found)") }
        guard let target, let path else { return nil }
        return (target, path)
    }

    static let refusalKeys = ["status", "content_type", "body", "frame", "reply_to", "headers", "codes"]

    mutating func refusal(_ tree: ConfigurationTree) -> RefusalForm? {
        guard let keys = map(tree, "`refusal`", Self.refusalKeys) else { return nil }
        var form = RefusalForm()
        if let tree = keys["status"], let status = status(tree, "refusal.status", "403") { form.status = status }
        if let tree = keys["content_type"],
            let type = word(tree, "refusal.content_type", "a media type, for example `application/json`")
        {
            form.contentType = type
        }
        form.body = refusal(keys["body"], "refusal.body") ?? form.body
        form.frame = refusal(keys["frame"], "refusal.frame")
        form.replyTo = keys["reply_to"].flatMap { copies($0, "refusal.reply_to", into: form.frame, "refusal.frame") }
        if let tree = keys["headers"] { form.headers = headers(tree) }
        if let tree = keys["codes"] { form.codes = codes(tree) }
        return form
    }

    /// Fields that describe the message or the connection, or have a key of their own.
    private static let ownFields = [
        "connection", "content-encoding", "content-length", "content-type", "date", "keep-alive", "retry-after", "te",
        "trailer", "transfer-encoding", "upgrade",
    ]

    /// Reads the fields of every refusal.
    private mutating func headers(_ tree: ConfigurationTree) -> HeaderFields {
        var fields = HeaderFields()
        for (name, value) in entries(tree, "`refusal.headers`", "X-Reason: encryption") {
            let place = "refusal.headers.\(name)"
            guard let text = text(value, place, "a text in one line") else { continue }
            // RFC 9110 sections 5.1 and 5.5.
            let isName =
                !name.isEmpty && name.utf8.allSatisfy { 0x21...0x7E ~= $0 && !#""(),/:;<=>?@[\]{}"#.utf8.contains($0) }
            guard isName, !Self.ownFields.contains(name.lowercased()), text.utf8.allSatisfy({ 0x20...0x7E ~= $0 })
            else {
                wrong(
                    "`\(place)`", value.line,
                    "cannot be set; expected a header field of your own and a text in one line")
                continue
            }
            fields.add(name, text)
        }
        return fields
    }

    static let codeKeys = ["status", "body"]

    /// Reads the forms for single codes: `CODE|CODE: {status: NUMBER, body: JSON}`.
    private mutating func codes(_ tree: ConfigurationTree) -> [String: RefusalForm.Special] {
        var codes: [String: RefusalForm.Special] = [:]
        for (key, value) in entries(tree, "`refusal.codes`", "pawl_no_route: {status: 404}") {
            guard let keys = map(value, "`refusal.codes.\(key)`", Self.codeKeys) else { continue }
            var special = RefusalForm.Special()
            special.status = keys["status"].flatMap { status($0, "refusal.codes.\(key).status", "404") }
            special.body = refusal(keys["body"], "refusal.codes.\(key).body")
            for code in key.split(separator: "|", omittingEmptySubsequences: false).map(String.init) {
                guard RefusalForm.allCodes.contains(code) else {
                    let hint = NearestName.of(code, among: RefusalForm.allCodes).map { "did you mean `\($0)`?" }
                    let all = "there are " + RefusalForm.allCodes.map { "`\($0)`" }.joined(separator: ", ")
                    wrong(
                        "`refusal.codes`", value.line, "has no code \(quoted(code)); \(hint ?? all)", code: .unknownKey)
                    continue
                }
                if codes.updateValue(special, forKey: code) != nil {
                    wrong("`refusal.codes`", value.line, "has \(quoted(code)) twice", code: .conflict)
                }
            }
        }
        return codes
    }

    /// Reads the status of a refusal: of an error, or 200 for a backend whose errors are in the body alone.
    private mutating func status(_ tree: ConfigurationTree, _ place: String, _ example: String) -> Int? {
        if case .text("200") = tree.value { return 200 }
        let expected = "200, or a number from 400 to 599, for example `\(example)`"
        guard let text = text(tree, place, expected) else { return nil }
        guard let number = Int(text), 400...599 ~= number else {
            wrong("`\(place)`", tree.line, "is \(quoted(text)); expected \(expected)")
            return nil
        }
        return number
    }

    private mutating func refusal(_ tree: ConfigurationTree?, _ place: String) -> String? {
        guard let tree, let body = json(tree, place, #"{"error":"{reason}"}"#, numbers: ["status"]) else { return nil }
        if !body.contains("{reason}") {
            wrong("`\(place)`", tree.line, "has no {reason}; write it where the explanation belongs")
        }
        return body
    }

    static let withheldKeys = ["frame", "keep"]

    /// Reads what stands for a withheld WebSocket message.
    mutating func withheld(_ tree: ConfigurationTree) -> WithheldForm? {
        guard let keys = map(tree, "`withheld`", Self.withheldKeys, needs: Self.withheldKeys),
            let frame = keys["frame"].flatMap({ json($0, "withheld.frame", #"{"type":"withheld","seq":0}"#) }),
            let kept = keys["keep"].flatMap({ copies($0, "withheld.keep", into: frame, "withheld.frame") })
        else { return nil }
        return WithheldForm(frame: frame, kept: kept)
    }

    /// Reads which values of a received message stand where in a message of the gateway: `{PATH: PATH, ...}`.
    ///
    /// - Parameter frame: the message of the gateway, which must have a value at each place.
    private mutating func copies(
        _ tree: ConfigurationTree, _ place: String, into frame: String?, _ frameKey: String
    ) -> CopiedValues? {
        var copies: [CopiedValues.Copy] = []
        let document = frame.flatMap {
            try? JSONDocument(ByteBuffer(string: $0.replacing("{status}", with: "0")))
        }
        for (key, value) in entries(tree, "`\(place)`", "seq_reply: seq") {
            guard let target = path(key, place, value.line), let source = single(value, "\(place).\(key)") else {
                continue
            }
            guard !target.isPlural, target.text != "$", let document, (try? document.one(target)) != nil else {
                wrong(
                    "`\(place)`", value.line,
                    "names \(quoted(key)), where `\(frameKey)` has no value; write the value there that stays without one",
                    code: .conflict)
                continue
            }
            copies.append(CopiedValues.Copy(target, from: source))
        }
        return copies.isEmpty ? nil : CopiedValues(copies)
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
    ///
    /// - Parameter numbers: names that may stand outside of strings, because a number takes their place.
    mutating func json(
        _ tree: ConfigurationTree, _ place: String, _ example: String, numbers: [String] = []
    ) -> String? {
        let expected = "JSON in single quotes, for example `'\(example)'`"
        guard let text = text(tree, place, expected) else { return nil }
        let filled = numbers.reduce(text) { $0.replacing("{\($1)}", with: "0") }
        guard (try? JSONDocument(ByteBuffer(string: filled))) != nil else {
            wrong("`\(place)`", tree.line, "is \(quoted(text)), which is no JSON; expected \(expected)")
            return nil
        }
        return text
    }
}

extension AccountSource.Credential {
    /// Reads `header NAME`, `query NAME` or `cookie NAME`.
    init?(_ text: String) {
        let words = text.split(separator: " ").map(String.init)
        guard words.count == 2, words[1].utf8.allSatisfy({ 0x21...0x7E ~= $0 && !":;,=".utf8.contains($0) }) else {
            return nil
        }
        switch words[0] {
        case "header": self = .header(words[1])
        case "query": self = .query(words[1])
        case "cookie": self = .cookie(words[1])
        default: return nil
        }
    }

    /// The place as a mapping names it.
    var words: String {
        switch self {
        case .header(let name): "header " + name
        case .query(let name): "query " + name
        case .cookie(let name): "cookie " + name
        }
    }

    /// Whether a request's field, query part or cookie in one place is in the other too.
    func isSamePlace(_ other: Self) -> Bool {
        if case .header(let one) = self, case .header(let two) = other { return HeaderFields.areOneBehindCGI(one, two) }
        return self == other
    }
}
