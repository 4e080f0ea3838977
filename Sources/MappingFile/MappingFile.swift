// A mapping as an operator writes it. For the grammar see config/mappings/README.md; in short:
//
//     name: NAME
//     account: {credential: [WHERE NAME, ...], ask: GET TARGET, name: PATH, acting_as: query NAME}
//     members: {ask: GET TARGET, accounts: [names of] PATH,
//               page: QUERY | {query: QUERY, first: NUMBER, next: PATH, last: PATH}}
//     messages_by_id: {ask: GET TARGET, conversation: PATH}
//     conversations_by_id: {ask: GET TARGET, id: PATH}
//     content: {text: PATH, also: [PATH, ...], keep: [NAME, ...], mark: [NAME, ...], flag: PATH, envelope: PATH,
//               fallback: WORDS | {PATH: WORDS, ...}, mentions: {object: PATH, accounts: NAME, begin: TEXT,
//               everyone: {NAME: WORD}, also_in: [PATH, ...], unless: PATH}, armour: text | html | detect,
//               or_armour: text | html | detect, limit: {characters | bytes: NUMBER},
//               links: {begin: TEXT, written: TEXT}, stays: {PATH: [NAME, ...]}, joined: [PATH, ...]}
//     messages: {SHAPE: {when: CONDITIONS, unless: CONDITIONS, ...}, ...}
//     routes: {METHODS PATH?QUERY: LABEL [SHAPES] [-> SHAPES] | {label: ..., kind: KINDS, kinds: {PATH: KINDS, ...}}, ...}
//     frames: {from client: {CONDITION: LABEL [SHAPES] | {label: ..., kind: KINDS, acknowledgement: ANSWER}
//              | {login: {WHERE NAME: TEXT, ...}}, ...}, from backend: {...}}
//     ANSWER: {reference: PATH, accepted: {CONDITION: PATH, ...}, rejected: {CONDITION: PATH, ...},
//              later: {CONDITION: PATH, ...}, message_id: PATH}
//     refusal: {status: NUMBER, content_type: TYPE, body: JSON, frame: JSON, reply_to: {PATH: PATH, ...},
//               headers: {NAME: TEXT, ...}, codes: {CODE|...: {status: NUMBER, body: JSON}, ...}}
//     merged: JSON
//     withheld: {frame: JSON, keep: {PATH: PATH, ...}}
//     cors: {origins: "*" | [ORIGIN, ...], credentials: true | false}

package import JSONGateway
package import PawlConfiguration
package import Protection

/// Reads a mapping from its file.
package enum MappingFile {
    /// Reads a mapping.
    ///
    /// - Parameter kinds: what becomes of each kind of content; the routes have their labels by it.
    /// - Throws: all problems of the file, not only the first.
    package static func read(
        path: String, kinds: KindTreatments = .standard
    ) throws(ConfigurationError) -> Mapping {
        let tree = try self.tree(path)
        var reader = MappingReader(path: path)
        let mapping = reader.mapping(tree)
        guard let mapping, reader.problems.isEmpty else {
            throw ConfigurationError(problems: reader.problems)
        }
        let problems = mapping.faults(of: kinds).map { fault in
            let words =
                switch fault {
                case .unsealable(let kind):
                    "`kinds.\(kind.rawValue)` is `seal`, and the mapping \(path) names no content to seal for all requests of "
                        + "`kind: \(kind.rawValue)`; write `pass` or `refuse`"
                case .unmarked(let kind):
                    "`kinds.\(kind.rawValue)` is `\(kinds[kind].rawValue)`, and the mapping \(path) says of no request that "
                        + "it carries them; write `kind: \(kind.rawValue)` there"
                }
            return ConfigurationError.Problem(code: .conflict, message: words)
        }
        guard problems.isEmpty else { throw ConfigurationError(problems: problems) }
        return mapping.applying(kinds)
    }

    /// Reads the YAML. A syntax error gets a hint about quotes, the most frequent mistake.
    private static func tree(_ path: String) throws(ConfigurationError) -> ConfigurationTree {
        do throws(ConfigurationError) {
            return try ConfigurationTree(path: path, called: "mapping")
        } catch {
            let hint = "; put a path in quotes if it begins with * or [, or has them in a list"
            throw ConfigurationError(
                problems: error.problems.map { problem in
                    guard problem.code == .syntax else { return problem }
                    return .init(code: problem.code, message: problem.message + hint)
                })
        }
    }
}

/// Reads the tree of a mapping, and collects its problems.
struct MappingReader {
    /// Ours: routes of a mapping, counting each path that alternatives stand for. Matrix has some hundreds.
    static let routeLimit = 2048
    /// Ours: shapes of a mapping, counting each that lists of paths stand for.
    static let shapeLimit = 1024
    /// Ours: kinds of frames.
    static let frameLimit = 1024
    /// Ours: characters of one text.
    static let textLimit = 4096

    let path: String
    private(set) var problems: [ConfigurationError.Problem] = []
    /// The default names of the parts of messages.
    var content: ContentKeys?
    /// The shapes by name, and the line of each name.
    var shapes: [String: [MessageShape]] = [:]
    var shapeLines: [String: Int] = [:]
    var usedShapes: Set<String> = []
    /// The places of credentials.
    var credentialPlaces: [AccountSource.Credential] = []

    init(path: String) { self.path = path }

    /// The top-level keys, in the order of the examples.
    static let keys = [
        "name", "account", "members", "messages_by_id", "conversations_by_id", "content", "messages", "routes",
        "frames", "refusal", "merged", "withheld", "cors",
    ]

    mutating func mapping(_ tree: ConfigurationTree) -> Mapping? {
        guard let keys = map(tree, "the mapping", Self.keys, needs: ["name", "account", "routes"]) else { return nil }
        let name = keys["name"].flatMap { word($0, "name", "a name without spaces: name: matrix", limit: 64) }
        let account = keys["account"].flatMap { self.account($0) }
        credentialPlaces = account?.credentials ?? []
        let members = keys["members"].flatMap { self.members($0) }
        content = keys["content"].flatMap { self.content($0, "content") }
        if let tree = keys["messages"] { messages(tree) }
        let routes = keys["routes"].map { self.routes($0) } ?? []
        let frames = keys["frames"].map { self.frames($0) } ?? []
        let refusal = keys["refusal"].flatMap { self.refusal($0) } ?? RefusalForm()
        for (name, line) in shapeLines.sorted(by: { $0.value < $1.value }) where !usedShapes.contains(name) {
            wrong("`messages.\(name)`", line, "is named by no route and no frame; name it there, or take it out")
        }
        guard let name, let account else { return nil }
        var mapping = Mapping(
            name: name, account: account, members: members, routes: routes, frames: frames, refusal: refusal)
        mapping.merged = keys["merged"].flatMap {
            json($0, "merged", #"{"local_id":"{local_id}","id":"{message_id}"}"#)
        }
        mapping.withheld = keys["withheld"].flatMap { withheld($0) }
        mapping.messagesByID = keys["messages_by_id"].flatMap { messagesByID($0) }
        mapping.conversationsByID = keys["conversations_by_id"].flatMap { conversationsByID($0) }
        mapping.crossOrigin = keys["cors"].flatMap { crossOrigin($0) }
        return mapping
    }

    // MARK: Problems

    /// Adds a problem of a line: "`KEY` in FILE line 3 is ...; expected ...".
    mutating func wrong(
        _ what: String, _ line: Int, _ words: String, code: ConfigurationError.Code = .wrongValue
    ) {
        problems.append(
            .init(code: code, message: "\(what) in \(path) line \(line)\(words.hasPrefix(";") ? "" : " ")\(words)"))
    }

    // MARK: Shapes of YAML

    /// The known keys of a map. Unknown and missing keys are problems.
    mutating func map(
        _ tree: ConfigurationTree, _ place: String, _ known: [String], needs: [String] = []
    ) -> [String: ConfigurationTree]? {
        guard case .map(let members) = tree.value else {
            let words = known.map { "`\($0):`" }.joined(separator: ", ")
            wrong(place, tree.line, "is \(tree.words); expected keys below it: \(words)", code: .wrongType)
            return nil
        }
        var found: [String: ConfigurationTree] = [:]
        for (key, value) in members {
            if known.contains(key) {
                found[key] = value
            } else {
                let hint = NearestName.of(key, among: known).map { "did you mean `\($0)`?" }
                let all = "there are " + known.map { "`\($0)`" }.joined(separator: ", ")
                wrong("unknown key \(quoted(key)) of \(place)", value.line, "; \(hint ?? all)", code: .unknownKey)
            }
        }
        for key in needs where found[key] == nil {
            wrong(place, tree.line, "has no `\(key)`; write `\(key):`", code: .conflict)
        }
        return found
    }

    /// The members of a map whose keys the operator chooses.
    mutating func entries(
        _ tree: ConfigurationTree, _ place: String, _ example: String
    ) -> [(key: String, value: ConfigurationTree)] {
        if case .map(let members) = tree.value { return members }
        wrong(place, tree.line, "is \(tree.words); expected lines below it, for example `\(example)`", code: .wrongType)
        return []
    }

    mutating func text(_ tree: ConfigurationTree, _ place: String, _ expected: String) -> String? {
        guard case .text(let text) = tree.value else {
            wrong("`\(place)`", tree.line, "is \(tree.words); expected \(expected)", code: .wrongType)
            return nil
        }
        guard text.unicodeScalars.count <= Self.textLimit else {
            wrong("`\(place)`", tree.line, "is longer than \(Self.textLimit) characters")
            return nil
        }
        return text
    }

    /// A text without spaces.
    mutating func word(_ tree: ConfigurationTree, _ place: String, _ expected: String, limit: Int = 256) -> String? {
        guard let text = text(tree, place, expected) else { return nil }
        guard (1...limit).contains(text.utf8.count), text.utf8.allSatisfy({ 0x21...0x7E ~= $0 }) else {
            wrong("`\(place)`", tree.line, "is \(tree.words); expected \(expected)")
            return nil
        }
        return text
    }

    /// A list of texts, or one text.
    mutating func texts(
        _ tree: ConfigurationTree, _ place: String, _ expected: String
    ) -> [(text: String, line: Int)] {
        guard case .list(let items) = tree.value else {
            return text(tree, place, expected).map { [($0, tree.line)] } ?? []
        }
        return items.compactMap { item in text(item, place, expected).map { ($0, item.line) } }
    }
}
