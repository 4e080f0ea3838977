import JSONCodec
import JSONGateway
import NIOCore
import PawlConfiguration
import Protection

/// Reads the routes of requests and the kinds of frames.
extension MappingReader {
    static let routeKeys = [
        "label", "remote_id", "local_id", "conversation", "references", "at_once", "chosen_members", "file_name",
        "multipart", "thumbnail_of", "without_login", "kind", "kinds", "also_in_body",
    ]
    static let routeExample = "POST /conversations/{conversation}/messages: content written"

    mutating func routes(_ tree: ConfigurationTree) -> [Mapping.Route] {
        var routes: [Mapping.Route] = []
        var lines: [Int] = []
        // By the first segment of the path; nil if it begins with any segment.
        var firsts: [String?: [Int]] = [:]
        for (key, value) in entries(tree, "`routes`", Self.routeExample) {
            do throws(RouteKey.Fault) {
                let key = try RouteKey(key)
                for path in key.paths {
                    guard let route = route(key, path, value) else { break }
                    var first: String?
                    if case .literal(let text)? = path.segments.first { first = text }
                    let candidates = firsts[nil, default: []] + (first == nil ? [] : firsts[first, default: []])
                    if let earlier = candidates.first(where: { routes[$0].covers(route) }) {
                        wrong(
                            "the route `\(path.text)`", value.line,
                            "never fits: the route in line \(lines[earlier]) takes all its requests; put it above that",
                            code: .conflict)
                        break
                    }
                    firsts[first, default: []].append(routes.count)
                    routes.append(route)
                    lines.append(value.line)
                }
            } catch {
                wrong("the route \(quoted(key))", value.line, "cannot be read: \(error.words)")
            }
            guard routes.count <= Self.routeLimit else {
                wrong("`routes`", tree.line, "are more than \(Self.routeLimit)")
                return []
            }
        }
        return routes
    }

    /// The methods of requests that the queue can keep.
    private static let queueable = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

    private mutating func route(_ key: RouteKey, _ path: PathPattern, _ tree: ConfigurationTree) -> Mapping.Route? {
        let place = "the route `\(path.text)`"
        var keys: [String: ConfigurationTree] = ["label": tree]
        if case .map = tree.value {
            guard let found = map(tree, place, Self.routeKeys, needs: ["label"]) else { return nil }
            keys = found
        }
        guard let labelTree = keys["label"], let words = label(labelTree, place) else { return nil }
        let captures = path.captureNames
        func captured(_ name: String) -> ValueSource? { captures.contains(name) ? .capture(name) : nil }

        let conversation = keys["conversation"].map { source($0, "conversation") } ?? captured("conversation")
        let references =
            keys["references"].map { tree in
                texts(tree, "references", Self.sourceExample).compactMap { source($0.text, "references", $0.line) }
            } ?? [captured("message_id")].compactMap(\.self)
        var request = messages(words.request, place, tree.line, conversation, references)
        let response = messages(words.response, place, tree.line, conversation, [])
        let remote = keys["remote_id"].flatMap { single($0, "remote_id") }
        var local = keys["local_id"].map { source($0, "local_id") } ?? captured("local_id")
        if local == nil, let own = request.first?.localID { local = .message(own) }
        if case .message(let path)? = local {
            for index in request.indices where request[index].content == nil {
                request[index].kept?.formUnion([path.firstMember].compactMap(\.self))
            }
        }
        for source in references + [conversation, local].compactMap(\.self) + (request + response).map(\.conversation) {
            switch source {
            case .capture(let name) where !captures.contains(name), .ofMessage(let name) where !captures.contains(name):
                let hint =
                    name == "conversation"
                    ? "; name it in the path, or write `conversation:` for all messages of the route" : ""
                wrong(place, tree.line, "has no {\(name)}, where the \(name) is looked for" + hint)
            default: continue
            }
            break
        }
        let odd = key.methods.filter { !Self.queueable.contains($0) }
        if words.label == .content || words.label == .control, let method = odd.first {
            wrong(
                place, tree.line,
                "is `\(words.label)`, and a \(method) cannot wait in the queue; these can: "
                    + Self.queueable.joined(separator: ", "))
        }
        if words.label == .download, key.methods != ["GET"] {
            wrong(place, tree.line, "is `download`, which is for `GET` alone")
        }
        if words.label == .upload, key.methods.isEmpty || !Set(key.methods).isSubset(of: ["POST", "PUT"]) {
            wrong(place, tree.line, "is `upload`, which is for `POST` and `PUT` alone")
        }
        if request.count > 1 {
            wrong(place, tree.line, "has several messages in its request; a request has one place for them")
        }
        if request.contains(where: { !$0.parsed.isEmpty || $0.bodies != [.json] }),
            references.contains(where: { if case .message = $0 { true } else { false } })
        {
            wrong(
                place, tree.line,
                "has `references` in a body with `parse` or in a form; the queue exchanges ids in plain JSON only")
        }
        let answer = keys["at_once"].flatMap { atOnce($0, hasLocalID: local != nil) } ?? .whenDone
        let chosen = keys["chosen_members"].flatMap { chosenMembers($0) }
        if let chosen, chosen.query == nil ? words.label != .passthrough : response.isEmpty {
            wrong(
                place, tree.line,
                "has `chosen_members`; they are in the query of a request for messages, or in the body of a `passthrough`"
            )
        }
        let kinds = keys["kind"].map { self.kinds($0, place) } ?? []
        let parts = keys["kinds"].map { self.parts($0, place) } ?? []
        if !kinds.isEmpty, ![.content, .control, .passthrough, .history, .sync].contains(words.label) {
            wrong(
                place, tree.line,
                "has a `kind` and is `\(words.label.rawValue)`; expected content, control, passthrough, history or sync"
            )
        }
        if !parts.isEmpty, words.label != .passthrough {
            wrong(place, tree.line, "has `kinds` and is `\(words.label.rawValue)`; expected `passthrough`")
        }
        let repeated = keys["also_in_body"].flatMap { self.repeated($0) }
        if let tree = keys["also_in_body"], ![.passthrough, .history, .sync].contains(words.label) || !parts.isEmpty {
            wrong(
                "`also_in_body`", tree.line,
                "has a meaning in a `passthrough`, `history` or `sync` without `kinds`", code: .conflict)
        }
        let file = filePlaces(keys, words.label, path, place)
        if words.label == .upload { checkTexts(file, request, conversation, place, tree.line) }
        return Mapping.Route(
            methods: key.methods, path: path, query: key.query, label: words.label, request: request.first,
            response: response, remoteID: remote, localID: local, conversation: conversation, references: references,
            answer: answer, chosenMembers: chosen, file: file, kinds: kinds, parts: parts, repeated: repeated)
    }

    static let repeatedKeys = ["parse", "path"]

    /// Reads where the last segment of the path stands in the body: `{parse: message, path: message.method}`.
    private mutating func repeated(_ tree: ConfigurationTree) -> RepeatedSegment? {
        guard let keys = map(tree, "`also_in_body`", Self.repeatedKeys, needs: ["path"]),
            let path = keys["path"].flatMap({ single($0, "also_in_body.path") })
        else { return nil }
        return RepeatedSegment(path: path, parsed: keys["parse"].map { parsed($0, "also_in_body") } ?? [])
    }

    /// Checks that the texts in a form with files are those of a message, whose conversation is known before them.
    private mutating func checkTexts(
        _ file: FilePlaces, _ request: [MessageShape], _ conversation: ValueSource?, _ place: String, _ line: Int
    ) {
        let hasText = file.parts?.values.contains(.text) == true
        guard hasText || !request.isEmpty else { return }
        guard hasText, let shape = request.first else {
            return wrong(
                place, line,
                "needs both: a message (`upload written`), and the parts that are texts of it (`multipart: {note: text}`)",
                code: .conflict)
        }
        guard shape.edited == nil else {
            return wrong(place, line, "has files and `edits`; a form with files writes a new message", code: .conflict)
        }
        guard let conversation, shape.conversation == conversation else {
            return wrong(
                place, line,
                "has files, which are sent before the text has come; its conversation must be in the path or the query",
                code: .conflict)
        }
        switch conversation {
        case .capture, .query: break
        case .message, .container, .containerName, .ofMessage:
            wrong(place, line, "has files, and the conversation is not in the path or the query", code: .conflict)
        }
    }

    /// Reads what a route says about its file.
    private mutating func filePlaces(
        _ keys: [String: ConfigurationTree], _ label: Mapping.Label, _ path: PathPattern, _ place: String
    ) -> FilePlaces {
        var file = FilePlaces()
        if let tree = keys["file_name"] {
            if label == .upload {
                file.name = queryName(tree, "file_name")
            } else {
                wrong("`file_name`", tree.line, "has a meaning in an `upload` only", code: .conflict)
            }
        }
        if let tree = keys["multipart"] {
            if label == .upload {
                file.parts = formParts(tree)
            } else {
                wrong("`multipart`", tree.line, "has a meaning in an `upload` only", code: .conflict)
            }
        }
        if let tree = keys["without_login"] {
            if label == .download {
                file.needsNoLogin = flag(tree, place + ".without_login")
            } else {
                wrong("`without_login`", tree.line, "has a meaning in a `download` only", code: .conflict)
            }
        }
        if let tree = keys["thumbnail_of"] {
            if label == .download {
                file.whole = thumbnailSource(tree, path, place)
            } else {
                wrong("`thumbnail_of`", tree.line, "has a meaning in a `download` only", code: .conflict)
            }
        }
        return file
    }

    /// Ours: maximum names of parts.
    private static let partLimit = 32

    /// Reads the parts of a form with a file: `{files: file, channel_id: pass}`.
    private mutating func formParts(_ tree: ConfigurationTree) -> [String: FilePlaces.Part]? {
        let known = FilePlaces.Part.allCases.map(\.rawValue).joined(separator: " or ")
        var parts: [String: FilePlaces.Part] = [:]
        for (name, value) in entries(tree, "`multipart`", "file: file") {
            guard let text = text(value, "multipart", known) else { continue }
            guard let part = FilePlaces.Part(rawValue: text) else {
                wrong("`multipart`", value.line, "has \(quoted(text)); expected \(known)")
                continue
            }
            parts[name] = part
        }
        guard parts.values.contains(.file), parts.count <= Self.partLimit else {
            wrong(
                "`multipart`", tree.line,
                "names no part that is a `file`, or more than \(Self.partLimit) parts; for example {file: file}")
            return nil
        }
        return parts
    }

    /// Reads the request for the whole file, whose names in braces are those of the path.
    private mutating func thumbnailSource(_ tree: ConfigurationTree, _ path: PathPattern, _ place: String) -> String? {
        guard let target = target(tree, "thumbnail_of", "GET /files/{file}") else { return nil }
        let rest = path.captureNames.reduce(target) { $0.replacing("{\($1)}", with: "") }
        guard !rest.contains(where: { "{}".contains($0) }) else {
            wrong("`thumbnail_of`", tree.line, "holds a name in braces that \(place) does not have")
            return nil
        }
        return target
    }

    /// Reads one kind of content, or a list of them.
    mutating func kinds(_ tree: ConfigurationTree, _ place: String) -> [ContentKind] {
        let known = ContentKind.allCases.map(\.rawValue)
        var kinds: [ContentKind] = []
        if case .list(let items) = tree.value, items.isEmpty {
            wrong(place, tree.line, "has an empty list of kinds; expected one of " + known.joined(separator: ", "))
        }
        for (name, line) in texts(tree, place + ".kind", "one of " + known.joined(separator: ", ")) {
            guard let kind = ContentKind(rawValue: name) else {
                wrong(place, line, "has the kind \(quoted(name)); expected one of " + known.joined(separator: ", "))
                continue
            }
            if !kinds.contains(kind) { kinds.append(kind) }
        }
        return kinds
    }

    /// Reads the places of a body that hold content of a kind.
    private mutating func parts(_ tree: ConfigurationTree, _ place: String) -> [Mapping.Route.Part] {
        entries(tree, "`kinds`", "topic: topics").flatMap { key, value -> [Mapping.Route.Part] in
            guard let path = path(key, "kinds", value.line) else { return [] }
            return kinds(value, place).map { Mapping.Route.Part(path: path, kind: $0) }
        }
    }

    /// Reads a label with its messages: `content written -> echoed`.
    private mutating func label(_ tree: ConfigurationTree, _ place: String) -> LabelText? {
        let labels = Mapping.Label.allCases.map(\.rawValue)
        guard case .text(let text) = tree.value, let first = text.split(separator: " ").first else {
            wrong(
                place, tree.line, "is \(tree.words); expected one of " + labels.joined(separator: ", "),
                code: .wrongType)
            return nil
        }
        guard let label = Mapping.Label(rawValue: String(first)) else {
            let hint = NearestName.of(String(first), among: labels).map { "did you mean `\($0)`?" }
            wrong(
                place, tree.line,
                "has the label \(quoted(String(first))); \(hint ?? "the labels are " + labels.joined(separator: ", "))")
            return nil
        }
        let sides = text.dropFirst(first.count).split(separator: "->", omittingEmptySubsequences: false).map { side in
            side.split(whereSeparator: { $0 == " " || $0 == "," }).map(String.init)
        }
        let (request, response) = (sides.first ?? [], sides.dropFirst().first ?? [])
        let needs: String? =
            switch label {
            case .content where request.isEmpty:
                "names no messages; write which of `messages` it carries: `content written`"
            case .history where response.isEmpty || !request.isEmpty,
                .search where response.isEmpty || !request.isEmpty,
                .sync where response.isEmpty || !request.isEmpty:
                "names no messages; write which of `messages` its answer holds: `\(label.rawValue) -> page`"
            case .upload where request.isEmpty && !response.isEmpty:
                "names no messages; write which of `messages` stands beside its files: `upload written -> page`"
            case .control, .media, .download, .passthrough, .refused:
                request + response == [] ? nil : "carries no messages; write the label alone"
            default: sides.count > 2 ? "has more than one arrow" : nil
            }
        if let needs {
            wrong(place, tree.line, needs)
            return nil
        }
        return LabelText(label: label, request: request, response: response)
    }

    /// The shapes with these names, for one route.
    private mutating func messages(
        _ names: [String], _ place: String, _ line: Int, _ conversation: ValueSource?, _ references: [ValueSource]
    ) -> [MessageShape] {
        var found: [MessageShape] = []
        for name in names {
            usedShapes.insert(name)
            if let known = shapes[name] {
                found += known
            } else if shapeLines[name] == nil {
                let hint = NearestName.of(name, among: shapeLines.keys.sorted()).map { "; did you mean `\($0)`?" }
                wrong(place, line, "names the messages \(quoted(name)), which `messages` does not have\(hint ?? "")")
            }
        }
        // Members that the gateway reads itself are not sealed.
        let named = references.compactMap { if case .message(let path) = $0 { path.firstMember } else { nil } }
        for index in found.indices where found[index].content == nil { found[index].kept?.formUnion(named) }
        return found
    }

    static let chosenKeys = ["query", "list", "add"]

    private mutating func chosenMembers(_ tree: ConfigurationTree) -> ChosenMembers? {
        guard let keys = map(tree, "`chosen_members`", Self.chosenKeys, needs: ["list", "add"]) else { return nil }
        let query = keys["query"].flatMap {
            word($0, "chosen_members.query", "a name in the query, for example `filter`")
        }
        let list = keys["list"].flatMap { single($0, "chosen_members.list") }
        let names = keys["add"].map { texts($0, "chosen_members.add", "a list of names, for example `[encrypted]`") }
        guard let list, let names else { return nil }
        return ChosenMembers(query: query, list: list, needed: names.map(\.text))
    }

    static let atOnceKeys = ["status", "body"]

    private mutating func atOnce(_ tree: ConfigurationTree, hasLocalID: Bool) -> Mapping.Route.Answer? {
        guard let keys = map(tree, "`at_once`", Self.atOnceKeys, needs: Self.atOnceKeys),
            let status = keys["status"].flatMap({ number($0, "at_once.status", 200...299, "202") }),
            let body = keys["body"].flatMap({ json($0, "at_once.body", #"{"id":"{local_id}"}"#) })
        else { return nil }
        guard hasLocalID else {
            wrong("`at_once`", tree.line, "needs a `local_id`, by which the client knows its message until it is sent")
            return nil
        }
        return .atOnce(status: status, body: body)
    }

    // MARK: Frames

    static let frameKeys = ["from client", "from backend"]
    /// The key for every frame that no condition above it matches.
    static let anyFrame = "any other"

    mutating func frames(_ tree: ConfigurationTree) -> [FrameRoute] {
        guard let keys = map(tree, "`frames`", Self.frameKeys) else { return [] }
        return frames(keys["from client"], .fromClient) + frames(keys["from backend"], .fromBackend)
    }

    private mutating func frames(_ tree: ConfigurationTree?, _ direction: FrameRoute.Direction) -> [FrameRoute] {
        guard let tree else { return [] }
        let example = direction == .fromClient ? "type == \"send\": content spoken" : "type == \"message\": sync shown"
        var frames: [FrameRoute] = []
        for (key, value) in entries(tree, "`frames`", example) {
            let place = "the frame `\(key)`"
            guard frames.last.map({ $0.when != nil }) ?? true else {
                wrong(place, value.line, "never fits: `\(Self.anyFrame)` above it takes all", code: .conflict)
                break
            }
            guard frames.count < Self.frameLimit else {
                wrong("`frames`", tree.line, "are more than \(Self.frameLimit)")
                break
            }
            let when = key == Self.anyFrame ? nil : path("[?\(key)]", "frames", value.line)
            guard when != nil || key == Self.anyFrame else { continue }
            guard let frame = frame(direction, when, value, place) else { continue }
            frames.append(frame)
        }
        return frames
    }

    private mutating func frame(
        _ direction: FrameRoute.Direction, _ when: JSONPath?, _ tree: ConfigurationTree, _ place: String
    ) -> FrameRoute? {
        if case .map(let entries) = tree.value {
            guard entries.contains(where: { $0.key == "label" }) else {
                return login(tree, place).map {
                    FrameRoute(direction: direction, when: when, label: .passthrough, login: $0)
                }
            }
            guard let keys = map(tree, place, Self.frameKindKeys, needs: ["label"]), let label = keys["label"],
                case .text = label.value, var frame = frame(direction, when, label, place)
            else { return nil }
            guard keys.count > 1 else {
                wrong(place, tree.line, "has no `kind` and no `acknowledgement`; write its label alone")
                return nil
            }
            if let tree = keys["kind"] {
                let kinds = kinds(tree, place)
                guard !kinds.isEmpty else { return nil }
                guard direction == .fromClient, [.content, .control, .passthrough].contains(frame.label) else {
                    wrong(
                        place, tree.line, "has a `kind`; expected it in a content, control or passthrough of a client")
                    return nil
                }
                frame.kinds = kinds
            }
            if let tree = keys["acknowledgement"] {
                guard direction == .fromClient, frame.label == .content else {
                    wrong(place, tree.line, "has an `acknowledgement`; expected it in a content of a client")
                    return nil
                }
                guard let acknowledgement = acknowledgement(tree, of: frame) else { return nil }
                frame.acknowledgement = acknowledgement
            }
            return frame
        }
        guard case .text(let text) = tree.value else {
            wrong(place, tree.line, "is \(tree.words); expected a label", code: .wrongType)
            return nil
        }
        // All messages of the backend are answers, so the arrow may be omitted.
        let isAnswer = direction == .fromBackend && !text.contains("->")
        let words = text.split(separator: " ", maxSplits: 1).map(String.init)
        let full = isAnswer && words.count == 2 ? words[0] + " -> " + words[1] : text
        guard let label = label(ConfigurationTree(.text(full), line: tree.line), place) else { return nil }
        let names = direction == .fromClient ? label.request : label.response
        switch (label.label, direction) {
        case (.content, .fromBackend), (.sync, .fromClient), (.history, .fromClient),
            (.search, _):
            let right = direction == .fromClient ? "content" : "sync"
            wrong(place, tree.line, "has the label `\(label.label.rawValue)`; expected `\(right)`")
            return nil
        case (.upload, _), (.download, _):
            wrong(place, tree.line, "has the label `\(label.label.rawValue)`; a frame carries no file")
            return nil
        case (.content, .fromClient) where !label.response.isEmpty:
            wrong(place, tree.line, "has no answer; write frames of the backend below `from backend:`")
            return nil
        default: break
        }
        let shapes = messages(names, place, tree.line, nil, [])
        if shapes.contains(where: { $0.conversation.isInPath }) {
            wrong(
                place, tree.line,
                "looks for its conversation in a path, and a frame has none; write `conversation:` for its messages")
            return nil
        }
        return FrameRoute(direction: direction, when: when, label: label.label, shapes: shapes)
    }

    static let frameKindKeys = ["label", "kind", "acknowledgement"]
    static let acknowledgementKeys = ["reference", "accepted", "rejected", "later", "message_id"]

    /// Reads the backend's answer to a frame: `{reference: id, accepted: {type == "ack": id}, message_id: message_id}`.
    private mutating func acknowledgement(_ tree: ConfigurationTree, of frame: FrameRoute) -> Acknowledgement? {
        let place = "`acknowledgement`"
        guard let keys = map(tree, place, Self.acknowledgementKeys, needs: ["reference", "accepted"]) else {
            return nil
        }
        let reference = keys["reference"].flatMap { single($0, "acknowledgement.reference") }
        let accepted = keys["accepted"].map { answers($0, "acknowledgement.accepted") } ?? []
        let rejected = keys["rejected"].map { answers($0, "acknowledgement.rejected") } ?? []
        let postponed = keys["later"].map { answers($0, "acknowledgement.later") } ?? []
        let messageID = keys["message_id"].flatMap { single($0, "acknowledgement.message_id") }
        guard let reference, !accepted.isEmpty else { return nil }
        if let shape = frame.shapes.first(where: { $0.seals(reference) }) {
            wrong(
                place, tree.line,
                "has the reference \(quoted(reference.text)), which is sealed with the text; expected a member that is not"
                    + (shape.kept == nil ? "" : ", so name it in `keep`"))
            return nil
        }
        var result = Acknowledgement(
            reference: reference, accepted: accepted, rejected: rejected, messageID: messageID)
        result.postponed = postponed
        return result
    }

    /// Reads kinds of answers: a condition, and the path of the reference.
    private mutating func answers(_ tree: ConfigurationTree, _ place: String) -> [Acknowledgement.Answer] {
        var answers: [Acknowledgement.Answer] = []
        for (key, value) in entries(tree, place, "type == \"ack\": id") {
            let when = path("[?\(key)]", place, value.line)
            guard let reference = single(value, place), let when else { continue }
            answers.append(Acknowledgement.Answer(when: when, reference: reference))
        }
        return answers
    }

    static let loginKeys = ["login"]

    /// Reads a frame that carries a login: `login: {header Authorization: "Bearer {data.token}"}`.
    private mutating func login(_ tree: ConfigurationTree, _ place: String) -> FrameLogin? {
        guard let keys = map(tree, place, Self.loginKeys, needs: Self.loginKeys), let places = keys["login"] else {
            return nil
        }
        var values: [FrameLogin.Value] = []
        for (key, value) in entries(places, place, "header Authorization: \"Bearer {data.token}\"") {
            guard let found = AccountSource.Credential(key), credentialPlaces.contains(found) else {
                let all = credentialPlaces.map { "`\($0.words)`" }.joined(separator: ", ")
                wrong(
                    place, value.line, "fills \(quoted(key)), which `account.credential` does not name; it has \(all)")
                continue
            }
            guard let text = text(value, place, "a text with paths in braces, for example `Bearer {data.token}`") else {
                continue
            }
            guard let parts = loginParts(text, place, value.line) else { continue }
            values.append(FrameLogin.Value(found, parts))
        }
        return values.isEmpty ? nil : FrameLogin(values)
    }

    /// Splits a text into its paths in braces and what is between them.
    private mutating func loginParts(_ text: String, _ place: String, _ line: Int) -> [FrameLogin.Part]? {
        var parts: [FrameLogin.Part] = []
        var rest = Substring(text)
        while let open = rest.firstIndex(of: "{"), let close = rest[open...].firstIndex(of: "}") {
            if open > rest.startIndex { parts.append(.text(String(rest[..<open]))) }
            guard let path = path(String(rest[rest.index(after: open)..<close]), place, line) else { return nil }
            guard !path.isPlural else {
                wrong(place, line, "has a path that can lead to several values; expected one without * and conditions")
                return nil
            }
            parts.append(.path(path))
            rest = rest[rest.index(after: close)...]
        }
        if !rest.isEmpty { parts.append(.text(String(rest))) }
        let fixed = parts.compactMap { if case .text(let text) = $0 { text } else { nil } }.joined()
        guard fixed.utf8.count < text.utf8.count,
            fixed.utf8.allSatisfy({ 0x20...0x7E ~= $0 && !"{};,".utf8.contains($0) })
        else {
            wrong(
                place, line,
                "is \(quoted(text)); expected a text with a path in braces, for example `Bearer {data.token}`")
            return nil
        }
        return parts
    }
}

extension ValueSource {
    /// Whether the value comes from a segment of the path.
    fileprivate var isInPath: Bool {
        switch self {
        case .capture, .ofMessage: true
        case .query, .message, .container, .containerName: false
        }
    }
}
