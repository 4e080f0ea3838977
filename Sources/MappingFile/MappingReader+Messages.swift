import JSONCodec
import JSONGateway
import PawlConfiguration

/// The names of the parts of a message that is sealed.
struct ContentKeys {
    var text: JSONPath
    var also: [JSONPath] = []
    var kept: Set<String>?
    var shown: Set<String>?
    /// Nil if armour shows an envelope.
    var flag: JSONPath?
    var armour: EnvelopeArmour?
    var envelope: JSONPath?
    var fallback = ""
    var fallbackParts: [FallbackPart] = []
    var mentions: MentionFields?
    var limit: TextLimit?
    var alternative: EnvelopeArmour?
    var links: LinkForm?
    var made: [String: Set<String>] = [:]
    var joined: [JSONPath] = []
}

/// Reads where messages are, and which parts they have.
extension MappingReader {
    static let contentKeys = [
        "text", "also", "keep", "mark", "flag", "armour", "or_armour", "envelope", "fallback", "mentions", "limit",
        "links", "stays", "joined",
    ]

    /// - Parameter standard: the values for all messages, if this is about some of them.
    mutating func content(
        _ tree: ConfigurationTree, _ place: String, _ standard: ContentKeys? = nil
    ) -> ContentKeys? {
        guard let keys = map(tree, "`\(place)`", Self.contentKeys, needs: standard == nil ? ["text"] : []) else {
            return nil
        }
        let text = keys["text"].map { members($0, place + ".text") } ?? standard?.text
        let flag = keys["flag"].map { members($0, place + ".flag") } ?? standard?.flag
        guard let text else { return nil }
        var result = standard ?? ContentKeys(text: text)
        (result.text, result.flag) = (text, flag)
        if let tree = keys["armour"] {
            result.armour = armour(tree, place + ".armour")
            result.flag = keys["flag"] == nil ? nil : flag
            // The envelope stands in the text of these messages, and not in the field of the others.
            (result.envelope, result.alternative) = (nil, nil)
            (result.fallback, result.fallbackParts) = ("", [])
        } else if keys["flag"] != nil {
            result.armour = nil
        }
        if result.armour == nil, result.flag == nil {
            wrong(
                "`\(place)`", tree.line,
                "has no `flag`; write `flag:`, or `armour: text` if your backend keeps no other member", code: .conflict
            )
            return nil
        }
        if result.armour != nil, let line = (keys["flag"] ?? keys["envelope"])?.line {
            wrong("`\(place)`", line, "has `armour`, which stands in the text, and a place for flag or envelope")
        }
        if let tree = keys["or_armour"] {
            result.alternative = armour(tree, place + ".or_armour")
            if result.envelope == nil, keys["envelope"] == nil {
                wrong(
                    "`\(place).or_armour`", tree.line,
                    "is for messages that have no envelope in its field; say where that is with `envelope:`")
            }
        }
        if let tree = keys["also"] {
            result.also = texts(tree, place + ".also", "a list of paths, for example `[html]`").compactMap {
                text, line in
                path(text, place + ".also", line).flatMap { members($0, place + ".also", line) }
            }
        }
        if let tree = keys["keep"] {
            result.kept = Set(texts(tree, place + ".keep", "a list of names, for example `[id, reply_to]`").map(\.text))
        }
        if let tree = keys["mark"] {
            let all = texts(tree, place + ".mark", "a list of names, for example `[formatted_body]`")
            result.shown = Set(all.compactMap { path($0.text, place + ".mark", $0.line)?.text })
        }
        if let tree = keys["envelope"] { result.envelope = members(tree, place + ".envelope") }
        if let tree = keys["fallback"] { fallback(tree, place + ".fallback", &result) }
        if let tree = keys["mentions"] { result.mentions = mentions(tree, place + ".mentions") }
        if result.envelope == nil, let tree = keys["fallback"] {
            wrong("`\(place).fallback`", tree.line, "is used only in an envelope; say where that is with `envelope:`")
        } else if result.envelope != nil, result.fallback.isEmpty {
            wrong(
                "`\(place)`", tree.line, "has no `fallback`, the words that stand where the text was", code: .conflict)
        }
        if let tree = keys["limit"] { result.limit = limit(tree, place + ".limit") }
        if let tree = keys["links"] { result.links = links(tree, place + ".links", result) }
        if let tree = keys["stays"] { result.made = made(tree, place + ".stays", result) }
        if let tree = keys["joined"] {
            result.joined = texts(tree, place + ".joined", "a list of paths, for example `[caption]`").compactMap {
                text, line in
                path(text, place + ".joined", line).flatMap { members($0, place + ".joined", line) }
            }
        }
        refuseOverlaps(result, place, tree.line)
        return result
    }

    private mutating func armour(_ tree: ConfigurationTree, _ place: String) -> EnvelopeArmour? {
        let armour = word(tree, place, "text, html or detect").flatMap(EnvelopeArmour.init)
        if armour == nil {
            wrong("`\(place)`", tree.line, "is \(tree.words); expected `text`, `html` or `detect`")
        }
        return armour
    }

    static let linkKeys = ["begin", "written"]

    /// Reads which links stay in the clear: `{begin: /files/, written: "[file]({link})"}`.
    private mutating func links(_ tree: ConfigurationTree, _ place: String, _ content: ContentKeys) -> LinkForm? {
        let example = "\"[file]({link})\""
        guard let keys = map(tree, "`\(place)`", Self.linkKeys, needs: Self.linkKeys),
            let begin = keys["begin"].flatMap({
                word($0, place + ".begin", "how links to files begin, for example `/files/`", limit: 64)
            }),
            let written = keys["written"].flatMap({
                text($0, place + ".written", "what is written for a link, for example `\(example)`")
            })
        else { return nil }
        guard begin.hasPrefix("/"), begin.hasSuffix("/"), begin.utf8.count > 2,
            written.split(separator: "{link}", omittingEmptySubsequences: false).count == 2
        else {
            wrong(
                "`\(place)`", tree.line,
                "needs a beginning between two slashes, and {link} once in what is written, for example "
                    + "{begin: /files/, written: \(example)}"
            )
            return nil
        }
        if content.armour == nil, content.envelope == nil {
            wrong(
                "`\(place)`", tree.line,
                "needs `armour` or `envelope`; an envelope that is the whole text has no place for links beside it",
                code: .conflict)
        }
        return LinkForm(beginning: begin, written: written)
    }

    /// Reads which members of sealed values the backend makes itself: `{attachments: [file_id, url]}`.
    private mutating func made(
        _ tree: ConfigurationTree, _ place: String, _ content: ContentKeys
    ) -> [String: Set<String>] {
        var made: [String: Set<String>] = [:]
        for (key, value) in entries(tree, "`\(place)`", "attachments: [file_id, url]") {
            guard let path = path(key, place, value.line) else { continue }
            let names = texts(value, "\(place).\(key)", "a list of names, for example `[file_id, url]`").map(\.text)
            guard content.also.contains(path), !names.isEmpty else {
                wrong(
                    "`\(place)`", value.line,
                    "has \(quoted(key)); expected a value of `also`, and names of members in it", code: .conflict)
                continue
            }
            made[path.text] = Set(names)
        }
        return made
    }

    /// Reads the words that stand where the text was: one text, or a text for each of several members.
    private mutating func fallback(_ tree: ConfigurationTree, _ place: String, _ result: inout ContentKeys) {
        let expected = "words for clients that cannot read it"
        guard case .map(let entries) = tree.value else {
            (result.fallback, result.fallbackParts) = (text(tree, place, expected) ?? "", [])
            return
        }
        (result.fallback, result.fallbackParts) = ("", [])
        for (key, value) in entries {
            guard let words = text(value, "\(place).\(key)", expected),
                let path = path(key, place, value.line).flatMap({ members($0, place, value.line) })
            else { continue }
            if path == result.text {
                result.fallback = words
            } else {
                result.fallbackParts.append(FallbackPart(path: path, text: words))
            }
        }
    }

    static let mentionKeys = ["object", "accounts", "begin", "everyone", "also_in", "unless"]

    /// Reads where messages list whom they mention.
    private mutating func mentions(_ tree: ConfigurationTree, _ place: String) -> MentionFields? {
        guard let keys = map(tree, "`\(place)`", Self.mentionKeys, needs: ["object", "accounts", "begin"]),
            let object = keys["object"].flatMap({ members($0, place + ".object") }),
            let accounts = keys["accounts"].flatMap({ word($0, place + ".accounts", "the name of a list") }),
            let beginning = keys["begin"].flatMap({
                word($0, place + ".begin", "how names of accounts begin, for example `\"@\"`", limit: 8)
            })
        else { return nil }
        var fields = MentionFields(object: object, accounts: accounts, beginning: beginning)
        if let tree = keys["everyone"] {
            for (member, value) in entries(tree, "`\(place).everyone`", "room: \"@room\"") {
                guard let word = word(value, place + ".everyone", "the word for everyone, for example `\"@room\"`")
                else { continue }
                guard fields.everyone == nil, word.hasPrefix(beginning), word != beginning, member != accounts else {
                    wrong(
                        "`\(place).everyone`", value.line, "is one member with one word that begins with \(beginning)")
                    continue
                }
                fields.everyone = .init(member: member, word: word)
            }
        }
        if let tree = keys["also_in"] {
            fields.others = texts(tree, place + ".also_in", "a list of paths, for example `[html]`").compactMap {
                text, line in
                path(text, place + ".also_in", line).flatMap { single($0, place + ".also_in", line) }
            }
        }
        fields.exception = keys["unless"].flatMap { path($0, place + ".unless") }
        return fields
    }

    static let limitKeys = ["characters", "bytes"]

    private mutating func limit(_ tree: ConfigurationTree, _ place: String) -> TextLimit? {
        guard let keys = map(tree, "`\(place)`", Self.limitKeys) else { return nil }
        let range = 1...(16 << 20)
        let characters = keys["characters"].flatMap { number($0, place + ".characters", range, "16383") }
        let bytes = keys["bytes"].flatMap { number($0, place + ".bytes", range, "65535") }
        guard (keys["characters"] == nil) != (keys["bytes"] == nil) else {
            wrong("`\(place)`", tree.line, "needs one of `characters:` and `bytes:`")
            return nil
        }
        return characters.map(TextLimit.characters) ?? bytes.map(TextLimit.bytes)
    }

    private mutating func refuseOverlaps(_ keys: ContentKeys, _ place: String, _ line: Int) {
        let places = [keys.text, keys.flag, keys.envelope].compactMap(\.self)
        let paths = places + keys.also + keys.joined
        for (index, path) in paths.enumerated() {
            for other in paths[(index + 1)...] {
                guard let names = path.memberNames, let others = other.memberNames,
                    names.starts(with: others) || others.starts(with: names)
                else { continue }
                wrong("`\(place)`", line, "has paths that lead into one another: \(path.text) and \(other.text)")
            }
        }
    }

    // MARK: Shapes

    static let shapeKeys = [
        "like", "containers", "messages", "within", "when", "unless", "conversation", "content", "sender", "recipients",
        "remote_id", "local_id", "edits", "confirm", "history", "parse", "body", "text_optional", "kind",
    ]

    private static let conditionExample = "a condition, for example `type == \"text\"`, or a list of them"

    mutating func messages(_ tree: ConfigurationTree) {
        var written: [String: [String: ConfigurationTree]] = [:]
        for (name, value) in entries(tree, "`messages`", "page: {messages: \"list[*]\", sender: author}") {
            let place = "messages.\(name)"
            guard !name.isEmpty, name.utf8.allSatisfy(Self.isShapeName), Mapping.Label(rawValue: name) == nil else {
                wrong("`\(place)`", value.line, "is no name for messages; write letters, digits, - and _, and no label")
                continue
            }
            let known = Self.shapeKeys + Self.contentKeys
            if case .nothing = value.value {
                written[name] = [:]
            } else {
                written[name] = map(value, "`\(place)`", known)
            }
            guard var keys = written[name] else { continue }
            if let like = keys.removeValue(forKey: "like") {
                // Only messages above it can be named, so none can name itself.
                guard let other = text(like, place + ".like", "the name of other messages") else { continue }
                guard shapeLines[other] != nil, let inherited = written[other] else {
                    let hint = NearestName.of(other, among: shapeLines.keys.sorted()).map { "; did you mean `\($0)`?" }
                    wrong(
                        "`\(place).like`", like.line, "names \(quoted(other)), which does not stand above\(hint ?? "")")
                    continue
                }
                keys.merge(inherited) { own, _ in own }
                usedShapes.insert(other)
            }
            keys["like"] = nil
            written[name] = keys
            shapeLines[name] = value.line
            shapes[name] = shape(keys, place, value.line)
        }
    }

    static func isShapeName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
            true
        default: false
        }
    }

    private mutating func shape(
        _ keys: [String: ConfigurationTree], _ place: String, _ line: Int
    ) -> [MessageShape] {
        let own = keys.filter { Self.contentKeys.contains($0.key) && $0.key != "content" }
        let members = own.map { (key: $0.key, value: $0.value) }.sorted { $0.key < $1.key }
        guard content != nil || own["text"] != nil else {
            wrong(
                "`\(place)`", line, "has no text; write `content:` at the top, with `text:` and `flag:`",
                code: .conflict)
            return []
        }
        guard
            let content = own.isEmpty
                ? content : content(ConfigurationTree(.map(members), line: line), place, content)
        else { return [] }
        let containers = keys["containers"].map { texts($0, place + ".containers", Self.pathExample) } ?? [("$", line)]
        let paths = messagePaths(keys, place, line)
        let conversation =
            keys["conversation"].map { source($0, place + ".conversation") } ?? .capture("conversation")
        let object = keys["content"].flatMap { single($0, place + ".content") }
        let sender = keys["sender"].flatMap { single($0, place + ".sender") }
        let recipients = keys["recipients"].flatMap { path($0, place + ".recipients") }
        let remote = keys["remote_id"].flatMap { single($0, place + ".remote_id") }
        let local = keys["local_id"].flatMap { single($0, place + ".local_id") }
        let edited = keys["edits"].flatMap { single($0, place + ".edits") }
        let parsed = keys["parse"].map { self.parsed($0, place) } ?? []
        let bodies = keys["body"].map { self.bodies($0, place) } ?? [.json]
        let isConfirmed = keys["confirm"].map { flag($0, place + ".confirm") } ?? false
        let isHistory = keys["history"].map { flag($0, place + ".history") } ?? false
        let isOptional = keys["text_optional"].map { flag($0, place + ".text_optional") } ?? false
        let kind = keys["kind"].flatMap { kinds($0, "`\(place)`").first }
        let exceptions = keys["unless"].map { conditions($0, place + ".unless") } ?? []
        guard let conversation else { return [] }
        var kept = content.kept
        if object == nil {
            // Members that the gateway reads itself are not sealed.
            var inMessage: JSONPath?
            if case .message(let path) = conversation { inMessage = path }
            kept?.formUnion([sender, recipients, remote, local, edited, inMessage].compactMap { $0?.firstMember })
        }
        guard self.shapes.values.reduce(containers.count * paths.count, { $0 + $1.count }) <= Self.shapeLimit else {
            wrong("`messages`", line, "stand for more than \(Self.shapeLimit) paths")
            return []
        }
        var shapes: [MessageShape] = []
        for (text, line) in containers {
            guard let container = path(text, place + ".containers", line) else { continue }
            for path in paths {
                var shape = MessageShape(
                    containers: container, messages: path, conversation: conversation, text: content.text,
                    also: content.also, flag: content.flag, envelope: content.envelope,
                    fallback: content.fallback, sender: sender, recipients: recipients, remoteID: remote,
                    localID: local, content: object, kept: kept)
                (shape.isHistory, shape.textIsOptional, shape.kind) = (isHistory, isOptional, kind)
                (shape.exceptions, shape.edited, shape.isConfirmed) = (exceptions, edited, isConfirmed)
                (shape.alternative, shape.links) = (content.alternative, content.links)
                (shape.made, shape.joined) = (content.made, content.joined)
                (shape.parsed, shape.bodies, shape.armour) = (parsed, bodies, content.armour)
                (shape.limit, shape.shown) = (content.limit, content.shown)
                (shape.fallbackParts, shape.mentions) = (content.fallbackParts, content.mentions)
                guard isConsistent(shape, place, line) else { return [] }
                if let limit = content.limit, shape.longestText == 0 {
                    wrong("`\(place)`", line, "has a `limit` of \(limit.length); a sealed text is longer in any case")
                    return []
                }
                shapes.append(shape)
            }
        }
        return shapes
    }

    /// Whether fallback and mentions are on the right side of what is sealed.
    private mutating func isConsistent(_ shape: MessageShape, _ place: String, _ line: Int) -> Bool {
        if let part = shape.fallbackParts.first(where: { shape.path(ofSealed: $0.path.text) == nil }) {
            wrong(
                "`\(place)`", line,
                "has a `fallback` at \(part.path.text), which is not sealed, so it would stay when the message is opened"
            )
            return false
        }
        guard let mentions = shape.mentions else { return true }
        let object = mentions.object
        let others = [shape.text, shape.flag, shape.envelope].compactMap { $0?.firstMember }
        guard object.firstMember.map(others.contains) == false,
            !shape.also.contains(where: { $0.firstMember == object.firstMember }),
            shape.kept.map({ object.firstMember.map($0.contains) == true }) ?? true
        else {
            wrong(
                "`\(place)`", line,
                "has `mentions` at \(object.text), which would be sealed; your backend has to read it: add it to `keep`"
            )
            return false
        }
        return true
    }

    /// Conditions, each as a path from the value that it is about.
    private mutating func conditions(_ tree: ConfigurationTree, _ place: String) -> [JSONPath] {
        texts(tree, place, Self.conditionExample).compactMap { text, line in path("[?\(text)]", place, line) }
    }

    /// The forms of a request's body.
    private mutating func bodies(_ tree: ConfigurationTree, _ place: String) -> Set<BodyForm> {
        let known = BodyForm.allCases.map(\.rawValue).joined(separator: ", ")
        var bodies: Set<BodyForm> = []
        for (text, line) in texts(tree, place + ".body", "a list of " + known) {
            if let form = BodyForm(rawValue: text) {
                bodies.insert(form)
            } else {
                wrong("`\(place).body`", line, "is \(quoted(text)); expected one or several of \(known)")
            }
        }
        return bodies
    }

    /// The paths of strings that hold JSON documents.
    mutating func parsed(_ tree: ConfigurationTree, _ place: String) -> [JSONPath] {
        let all = texts(tree, place + ".parse", "the path of a string that holds JSON, for example `data.post`")
        guard all.count <= JSONDocument.parsedPathLimit else {
            wrong("`\(place).parse`", tree.line, "has more than \(JSONDocument.parsedPathLimit) paths")
            return []
        }
        return all.compactMap { text, line in
            guard let path = path(text, place + ".parse", line) else { return nil }
            guard path.text != "$" else {
                wrong("`\(place).parse`", line, "is the whole document; name a string in it")
                return nil
            }
            return path
        }
    }

    /// The paths of messages in a container: each place, and each place within one, with the condition.
    private mutating func messagePaths(
        _ keys: [String: ConfigurationTree], _ place: String, _ line: Int
    ) -> [JSONPath] {
        let bases = keys["messages"].map { texts($0, place + ".messages", Self.pathExample) } ?? [("$", line)]
        let inner = keys["within"].map { texts($0, place + ".within", Self.pathExample) } ?? []
        let conditions = keys["when"].map {
            texts($0, place + ".when", Self.conditionExample)
        }
        var paths: [JSONPath] = []
        // Each part is first read alone, so that a problem is reported for this part.
        for (text, line) in inner { _ = path(text, place + ".within", line) }
        for (condition, line) in conditions ?? [] { _ = path("[?\(condition)]", place + ".when", line) }
        guard bases.count * (inner.count + 1) * max(1, conditions?.count ?? 1) <= Self.shapeLimit else {
            wrong("`\(place)`", line, "stands for more than \(Self.shapeLimit) paths")
            return []
        }
        let known = problems.count
        for (base, line) in bases {
            for (part, _) in [("$", line)] + inner {
                let joined = part == "$" ? base : base == "$" ? part : base + (part.hasPrefix("[") ? "" : ".") + part
                for ending in conditions?.map({ "[?\($0.text)]" }) ?? [""] {
                    if let path = path(joined + ending, place + ".messages", line) { paths.append(path) }
                    if problems.count > known { return paths }
                }
            }
        }
        return paths
    }
}
