// Applies a mapping to a sample, for the operator who writes it.

import Envelope
package import HTTPCodec
import JSONCodec
package import JSONGateway
package import NIOCore
import Protection

/// The result of applying a mapping to one request, answer or frame.
package struct MappingTrial: Encodable, Sendable {
    /// One message of the sample.
    package struct Message: Encodable, Sendable, Equatable {
        package var conversation: String
        package var sender: String?
        package var recipients: [String]?
        package var localID: String?
        package var remoteID: String?
        package var text: String?
        /// The sealed members, as JSON.
        package var sealed: String?
        package var isFlagged: Bool
        /// The longest text that the backend accepts when it is sealed, in bytes; nil if the mapping names no limit.
        package var longestText: Int?
        /// Whether it may contain an envelope.
        package var mayBeEnvelope: Bool
    }

    /// What one policy does with the sample.
    package struct Outcome: Encodable, Sendable, Equatable {
        package var policy: String
        package var words: String
        /// The body that the backend gets; nil if it is unchanged.
        package var body: String?
    }

    package var sample: String
    /// The route or frame that matches, as the mapping writes it.
    package var route: String?
    package var label: String?
    /// The places of credentials that the request fills. Their values are not shown.
    package var login: [String] = []
    /// Why this route matches, or why none does.
    package var reasons: [String] = []
    package var captures: [String: String] = [:]
    package var conversation: String?
    package var localID: String?
    package var remoteID: String?
    package var references: [String] = []
    /// The members in an answer to the lookup of members; nil if the sample is none.
    package var members: [String]?
    /// Whether its messages come from the backend: what is sealed of them is decided where they are sent.
    package var isReceived = false
    /// The query of the next page of members; nil if there is none.
    package var nextPage: String?
    package var messages: [Message] = []
    /// Faults of the sample, or of the mapping.
    package var faults: [String] = []
    /// Where each path leads.
    package var paths: [String] = []
    package var outcomes: [Outcome] = []

    /// Whether the sample is what the mapping expects.
    package var isGood: Bool { route != nil && faults.isEmpty }

    private init(_ sample: String) { self.sample = sample }

    /// Stands for an envelope.
    private static let envelope = Array("an envelope of some hundred bytes".utf8)

    // MARK: Requests and answers

    package static func request(_ mapping: Mapping, _ head: RequestHead, _ body: ByteBuffer) -> MappingTrial {
        var trial = MappingTrial("the request \(head.method) \(head.target)")
        let login = CredentialValues(in: head, at: mapping.account.credentials)
        trial.login = login.places.map(\.words)
        if let place = login.ambiguous {
            trial.faults.append(
                "`\(place.words)` has several values, or one that backends read differently; its account is unknown")
        }
        guard let match = trial.find(mapping, head) else {
            if mapping.members?.conversation(of: head) != nil { trial.isLookup() }
            return trial
        }
        let (route, target) = (match.route, match.target)
        trial.conversation = route.conversation.flatMap { target[$0] }
        trial.localID = route.localID.flatMap { target[$0] }
        trial.references = route.references.compactMap { target[$0] }
        var sealed: String?
        if route.label == .upload {
            trial.readUpload(route, head.headers, body, target)
        } else if let shape = route.request, let document = trial.document(body, shape, head.headers) {
            sealed = trial.read(document, [shape], target, isRequest: true)
            trial.conversation = trial.conversation ?? trial.messages.first?.conversation
            trial.localID = trial.localID ?? trial.messages.first?.localID
            for source in route.references {
                guard case .message(let path) = source, let place = try? document.one(path),
                    let id = try? document.identifier(place, path.text)
                else { continue }
                trial.references.append(id)
            }
        }
        trial.outcomes = Outcomes.of(route.label, body: sealed, isReadable: trial.faults.isEmpty)
        return trial
    }

    package static func response(
        _ mapping: Mapping, _ head: RequestHead, _ response: ResponseHead, _ body: ByteBuffer
    ) -> MappingTrial {
        var trial = MappingTrial("the answer \(response.status) to \(head.method) \(head.target)")
        if let source = mapping.members, let conversation = source.conversation(of: head) {
            trial.isLookup()
            trial.readMembers(source, conversation, response, body)
            return trial
        }
        guard let match = trial.find(mapping, head) else { return trial }
        let route = match.route
        guard !route.response.isEmpty || route.remoteID != nil else {
            trial.reasons.append("answers to such requests pass as they are")
            return trial
        }
        let shapes = route.response + (route.request.map { [$0] } ?? [])
        guard let document = trial.document(body, shapes) else { return trial }
        _ = trial.read(document, route.response, match.target, isRequest: false)
        if let path = route.remoteID {
            trial.paths.append("the backend's id: " + document.explanation(of: path))
            trial.remoteID = route.remoteIDSource?.id(in: document)
            if trial.remoteID == nil { trial.faults.append("the answer holds no id of the message at \(path.text)") }
        }
        return trial
    }

    package static func frame(
        _ mapping: Mapping, _ direction: FrameRoute.Direction, _ body: ByteBuffer
    ) -> MappingTrial {
        let side = direction == .fromClient ? "client" : "backend"
        var trial = MappingTrial("the frame from the \(side)")
        guard let whole = trial.document(body) else { return trial }
        guard let frame = mapping.frame(for: whole, direction) else {
            trial.reasons.append(
                whole.hasDuplicateNames(whole.root)
                    ? "it has two members of the same name, so its kind is ambiguous"
                    : "no condition of `from \(side)` is true of it")
            for known in mapping.frames where known.direction == direction {
                if let when = known.when { trial.paths.append(whole.explanation(of: when)) }
            }
            trial.outcomes = Outcomes.of(nil, body: nil)
            return trial
        }
        trial.route = frame.when?.text ?? MappingReader.anyFrame
        trial.label = frame.label.rawValue
        if let login = frame.login { trial.read(login, whole, mapping.account.credentials) }
        if let acknowledgement = frame.acknowledgement { trial.read(acknowledgement, whole) }
        if direction == .fromBackend { trial.readAnswer(mapping, whole) }
        let isRequest = direction == .fromClient && frame.label == .content
        guard let document = trial.document(body, frame.shapes) else { return trial }
        let sealed = trial.read(document, frame.shapes, TargetValues(), isRequest: isRequest)
        trial.outcomes = Outcomes.of(frame.label, body: sealed, isReadable: trial.faults.isEmpty)
        return trial
    }

    // MARK: Parts

    /// Reads the login in a frame.
    private mutating func read(
        _ login: FrameLogin, _ document: JSONDocument, _ places: [AccountSource.Credential]
    ) {
        label = "login"
        for case .path(let path) in login.values.flatMap(\.parts) {
            paths.append("login: " + document.explanation(of: path))
        }
        switch login.credential(in: document, at: places) {
        case .found: self.login = login.values.map(\.place.words)
        case .absent: faults.append("it has no value at a path of its login")
        case .unreadable: faults.append("its login can be read in more than one way, or holds white space, `;` or `,`")
        }
    }

    /// Reads the reference of a frame that the backend acknowledges.
    private mutating func read(_ acknowledgement: Acknowledgement, _ document: JSONDocument) {
        paths.append("reference: " + document.explanation(of: acknowledgement.reference))
        if acknowledgement.reference(in: document) == nil {
            reasons.append("it has no reference, so the gateway sends it once and does not keep it")
        }
    }

    /// Reads a frame as the answer to one of a client.
    private mutating func readAnswer(_ mapping: Mapping, _ document: JSONDocument) {
        for frame in mapping.frames {
            guard let answer = frame.acknowledgement?.answer(in: document) else { continue }
            let verb =
                switch answer.verdict {
                case .accepted: "accepts"
                case .rejected: "rejects"
                case .postponed: "puts off"
                }
            reasons.append("it \(verb) the message with the reference \(answer.references.joined(separator: ", "))")
        }
    }

    /// The sample is a request of the gateway itself, which needs no route.
    private mutating func isLookup() {
        route = "members.ask"
        reasons = ["the gateway itself asks for members with it"]
        outcomes = []
    }

    /// Reads the answer to a lookup of members.
    private mutating func readMembers(
        _ source: MembersSource, _ conversation: String, _ response: ResponseHead, _ body: ByteBuffer
    ) {
        self.conversation = conversation
        guard let document = document(body) else { return }
        paths.append("members: " + document.explanation(of: source.accounts))
        switch source.paging?.order {
        case .cursor(let path), .last(let path?): paths.append("next page: " + document.explanation(of: path))
        case .number, .offset, .last(nil), nil: break
        }
        members = source.members(in: response, body)?.map(\.name)
        if members == nil { faults.append("the answer holds no members at \(source.accounts.text)") }
        var pages = MemberPages(source, of: conversation, by: Credential())
        if case .ask(let next) = pages.take(response, body) { nextPage = next.head.query.map(String.init) }
    }

    private mutating func find(_ mapping: Mapping, _ head: RequestHead) -> RouteMatch? {
        guard let match = mapping.route(for: head) else {
            reasons = Self.reasons(mapping, head)
            outcomes = Outcomes.of(nil, body: nil)
            return nil
        }
        let route = match.route
        let methods = route.methods.isEmpty ? "*" : route.methods.joined(separator: "|")
        self.route = "\(methods) \(route.path.text)" + Self.words(route.query)
        label = route.label.rawValue
        reasons = ["it is the first route whose method, path and query fit"]
        for kind in route.kinds { reasons.append("it carries \(kind.rawValue), see kinds.\(kind.rawValue)") }
        for part in route.parts { reasons.append("\(part.kind.rawValue) at \(part.path.text) are refused") }
        self.captures = Dictionary(match.target.captures.all.map { ($0.name, $0.value) }) { first, _ in first }
        return match
    }

    private static func words(_ query: [QueryCondition]) -> String {
        guard !query.isEmpty else { return "" }
        return "?"
            + query.map { condition in
                switch condition.test {
                case .present: condition.name
                case .absent: "!" + condition.name
                case .equals(let value): "\(condition.name)=\(value)"
                }
            }.joined(separator: "&")
    }

    /// Why no route matches.
    private static func reasons(_ mapping: Mapping, _ head: RequestHead) -> [String] {
        if let fault = RequestPath.fault(head.path) {
            return ["its path can be read in more than one way, so it fits no route: \(fault)"]
        }
        guard let path = RequestPath(head.path) else { return [] }
        let plain = RequestHead(head.method, head.target)
        if mapping.route(for: plain) != nil {
            return ["a header field asks the backend to treat it as another request, so it fits no route"]
        }
        // A route that takes any path does not help to find the mistake.
        let routes = mapping.routes.filter { $0.path.segments != [.rest] }
        let fitting = routes.filter { RouteIndex.fits($0.path, path) }
        guard fitting.isEmpty else {
            return fitting.prefix(5).map { route in
                let methods = route.methods.joined(separator: "|")
                return route.takes(head.method)
                    ? "\(route.path.text) fits, but not its query: the route asks for \(words(route.query))"
                    : "\(route.path.text) fits, but the route takes \(methods), and this is \(head.method)"
            }
        }
        let longest = routes.map { RouteIndex.common($0.path, path) }.max() ?? 0
        var seen: Set<String> = []
        let near = routes.filter { RouteIndex.common($0.path, path) == longest && seen.insert($0.path.text).inserted }
            .prefix(3).map(\.path.text)
        let begin = path.segments.prefix(longest).joined(separator: "/")
        return longest == 0
            ? ["no route begins as its path does"]
            : ["no route fits its path; up to /\(begin) it fits " + near.joined(separator: ", ")]
    }

    /// Reads a request's body as the gateway does, and shows why it cannot be read.
    private mutating func document(_ body: ByteBuffer, _ shape: MessageShape, _ headers: HeaderFields) -> JSONDocument?
    {
        do throws(MessageFault) {
            return try shape.document(body, headers)
        } catch {
            if headers.describeParts {
                faults.append(
                    shape.bodies.contains(.multipart)
                        ? "\(error); a form with files belongs to an `upload` route with `multipart`"
                        : "its body is a form in parts, which these messages are not; write `body: [json, multipart]` "
                            + "for them, or the label `upload` with `multipart` if the form has files")
                return nil
            }
            guard error == .noMessage, shape.bodies.contains(.json) else {
                faults.append(error == .noMessage ? "its body is not of a form that the mapping allows" : "\(error)")
                return nil
            }
            return document(body, [shape])
        }
    }

    /// Reads the body of an upload as the gateway does: what becomes of each part of a form.
    private mutating func readUpload(
        _ route: Mapping.Route, _ headers: HeaderFields, _ body: ByteBuffer, _ target: TargetValues
    ) {
        let known = route.file.parts
        guard headers.describeParts else {
            if known?.values.contains(.text) == true {
                faults.append("its body is no form, and this route expects one with a text")
            } else if headers.first("Content-Type")?.lowercased().hasPrefix(Self.plainForm) == true {
                faults.append("its body is a form without files, which is refused; its text needs a `content` route")
            }
            return
        }
        guard let known else {
            return faults.append("its body is a form; write `multipart:` with the parts that it may have")
        }
        var texts: [FormPart] = []
        do throws(MultipartFault) {
            let boundary = try MultipartBoundary(headers)
            for (head, value) in try Self.parts(of: body, boundary) {
                guard let part = known[head.name] ?? known[FilePlaces.anyPart] else {
                    faults.append("the form has the part `\(head.name)`, which `multipart` does not name")
                    continue
                }
                paths.append("part \(head.name): " + Self.words(part))
                if (part == .file) != (head.fileName != nil) {
                    faults.append(
                        part == .file
                            ? "the part `\(head.name)` is no file: it has no `filename`"
                            : "the part `\(head.name)` is a file; write `\(head.name): file`")
                }
                guard part == .text else { continue }
                texts.append(FormPart(name: Array(head.name.utf8), value: value, head: head.received))
            }
            guard known.values.contains(.text), let shape = route.request, faults.isEmpty else { return }
            do throws(MessageFault) {
                let document = try shape.document(FormTexts(texts, boundary))
                _ = read(document, [shape], target, isRequest: true)
            } catch {
                faults.append("\(error)")
            }
        } catch {
            faults.append("its body is a form that cannot be read: \(error.words)")
        }
    }

    private static let plainForm = "application/x-www-form-urlencoded"

    /// The parts of a form with their values.
    private static func parts(
        of body: ByteBuffer, _ boundary: MultipartBoundary
    ) throws(MultipartFault) -> [(head: MultipartHead, value: [UInt8])] {
        var reader = MultipartReader(boundary)
        body.withUnsafeReadableBytes { reader.append($0) }
        var parts: [(head: MultipartHead, value: [UInt8])] = []
        while let piece = try reader.next() {
            switch piece {
            case .head(let head): parts.append((head, []))
            case .bytes(let bytes): parts[parts.count - 1].value += bytes
            case .end, .over: break
            }
        }
        try reader.finish()
        return parts
    }

    private static func words(_ part: FilePlaces.Part) -> String {
        switch part {
        case .file: "a file, which is sealed with its name and type"
        case .text: "a text, which is sealed"
        case .pass: "passes, and the backend reads it"
        }
    }

    private mutating func document(_ body: ByteBuffer, _ shapes: [MessageShape] = []) -> JSONDocument? {
        do throws(JSONError) {
            return try JSONDocument(body).parsing(for: shapes)
        } catch {
            faults.append("its body is \(error)")
            return nil
        }
    }

    /// - Returns: the document after sealing; nil if it is not a request, or has faults.
    private mutating func read(
        _ document: JSONDocument, _ shapes: [MessageShape], _ target: TargetValues, isRequest: Bool
    ) -> String? {
        let reading = MessageReading(document, shapes, target: target, isRequest: isRequest)
        faults += reading.faults.map(\.description)
        isReceived = !isRequest
        for message in reading.messages {
            let text = message.text.flatMap { try? document.text($0) }
            let sealed = (try? SealedContent(document, message)).map { String(decoding: $0.bytes, as: UTF8.self) }
            messages.append(
                Message(
                    conversation: message.conversation, sender: message.sender, recipients: message.recipients,
                    localID: message.localID, remoteID: message.remoteID, text: text, sealed: sealed,
                    isFlagged: message.isFlagged, longestText: isRequest ? message.shape.longestText : nil,
                    mayBeEnvelope: message.envelope != nil))
            if isRequest, let content = message.shape.longestText(besides: 0), let sealed, sealed.utf8.count > content {
                faults.append("what is sealed of it has \(sealed.utf8.count) bytes; your backend accepts \(content)")
            }
        }
        explain(document, shapes, reading, isRequest)
        guard isRequest, reading.faults.isEmpty else { return nil }
        do throws(MessageFault) {
            var edits = MessageEdits(document)
            for message in reading.messages {
                // Which accounts are in the conversation, only the gateway knows.
                let mentions = message.shape.mentions?.filled(document, message) { $0 }
                try edits.seal(message, envelope: Self.envelope, mentions: mentions)
            }
            return String(buffer: try edits.apply())
        } catch {
            faults.append(error.description)
            return nil
        }
    }

    /// Explains where the paths lead: those around the messages, and those within the first message.
    private mutating func explain(
        _ document: JSONDocument, _ shapes: [MessageShape], _ reading: MessageReading, _ isRequest: Bool
    ) {
        var lines: [String] = []
        for shape in shapes {
            for path in shape.parsed { lines.append("parse: " + document.explanation(of: path)) }
            if shape.containers.text != "$" {
                lines.append("containers: " + document.explanation(of: shape.containers))
            }
            guard let container = (try? document.places(shape.containers, limit: 1 << 16))?.first else { continue }
            if shape.messages.text != "$" {
                lines.append("messages: " + document.explanation(of: shape.messages, from: container))
            }
            let found = reading.messages.first { $0.shape == shape }
            guard let place = found?.place ?? (try? document.places(shape.messages, from: container))?.first else {
                continue
            }
            var content = place
            if let path = shape.content {
                lines.append("content: " + document.explanation(of: path, from: place))
                guard let inner = try? document.one(path, from: place) else { continue }
                content = inner
            }
            // A request has neither flag nor envelope: the gateway adds them.
            let ours =
                isRequest
                ? [] : (shape.flag.map { [("flag", $0)] } ?? []) + (shape.envelope.map { [("envelope", $0)] } ?? [])
            let inside = [("text", shape.text)] + ours
            for (name, path) in inside + shape.also.map({ ("also", $0) }) {
                lines.append("\(name): " + document.explanation(of: path, from: content))
            }
            let around = [
                ("sender", shape.sender), ("recipients", shape.recipients), ("remote id", shape.remoteID),
                ("local id", shape.localID), ("edits", isRequest ? shape.edited : nil),
            ]
            for case (let name, let path?) in around {
                lines.append("\(name): " + document.explanation(of: path, from: place))
            }
        }
        var seen = Set(paths)
        paths += lines.filter { seen.insert($0).inserted }
    }
}

/// What each policy does with a label.
enum Outcomes {
    static func of(_ label: Mapping.Label?, body: String?, isReadable: Bool = true) -> [MappingTrial.Outcome] {
        Policy.allCases.map { policy in
            guard isReadable || label != .content && label != .upload || !policy.demandsProtection else {
                return MappingTrial.Outcome(policy: policy.name, words: "refused, because it cannot be read")
            }
            let isSealed = policy.sealsEndToGateway && label == .content
            return MappingTrial.Outcome(
                policy: policy.name, words: words(label, policy), body: isSealed ? body : nil)
        }
    }

    private static func words(_ label: Mapping.Label?, _ policy: Policy) -> String {
        guard policy.takesPart else { return "passes as it is" }
        let counted = "passes as it is, and is counted"
        switch label {
        case nil: return "has no label: " + (policy.demandsProtection ? "refused" : counted)
        case .content:
            switch policy.outbound(to: .legacy(.services("")), latch: .plaintext) {
            case .plaintext:
                return policy.seeksProtection ? "passes as it is if a client cannot encrypt, and is counted" : counted
            case .seal: return "sealed; the backend gets this body"
            case .refuse: return "refused, unless the client has sealed it itself"
            }
        case .search where policy.demandsProtection:
            return "refused, because the backend would read the search terms"
        case .history, .search, .sync:
            let opened = "sealed messages in it are opened for clients that cannot open them"
            return policy.seeksProtection ? opened : counted
        case .media:
            return policy.demandsProtection ? "refused, because files are not protected; reading them passes" : counted
        case .upload where policy.sealsEndToGateway: return "sealed: its files, and what is sealed above"
        case .upload:
            return policy.demandsProtection ? "refused, because the gateway could read the file" : counted
        case .download: return "passes; a sealed file in the answer is opened"
        case .refused: return policy.demandsProtection ? "refused" : counted
        case .control: return "passes, in the order of its conversation"
        case .passthrough: return "passes as it is"
        }
    }
}

extension MembersSource {
    /// The conversation of a request that asks for members; nil if it is another request.
    fileprivate func conversation(of head: RequestHead) -> String? {
        let sides = target.split(separator: "?", maxSplits: 1)
        guard sides[0].contains("{conversation}") else {
            return sides.count > 1 ? conversation(of: head, path: sides[0], query: sides[1]) : nil
        }
        let parts = sides[0].split(separator: "{conversation}", omittingEmptySubsequences: false).map(String.init)
        let path = String(head.path)
        guard head.method == "GET", parts.count == 2, path.hasPrefix(parts[0]), path.hasSuffix(parts[1]),
            path.utf8.count > parts[0].utf8.count + parts[1].utf8.count
        else { return nil }
        let name = path.dropFirst(parts[0].count).dropLast(parts[1].count)
        guard !name.contains("/") else { return nil }
        return PercentCoding.decode(name.utf8).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The conversation, if the query has it: `GET /members?room={conversation}&limit=200`.
    private func conversation(of head: RequestHead, path: Substring, query: Substring) -> String? {
        func values(_ query: Substring) -> [(name: Substring, value: Substring)] {
            query.split(separator: "&").compactMap { part in
                part.firstIndex(of: "=").map { (part[..<$0], part[part.index(after: $0)...]) }
            }
        }
        guard head.method == "GET", head.path == path,
            let name = values(query).first(where: { $0.value == "{conversation}" })?.name,
            let value = values(head.query ?? "").first(where: { $0.name == name })?.value, !value.isEmpty
        else { return nil }
        return PercentCoding.decode(value.utf8).map { String(decoding: $0, as: UTF8.self) }
    }
}
