// The operator's description of a backend's API: which requests carry messages, and where in them the parts are.
// `MappingFile` reads it from a file.

package import HTTPCodec
package import JSONCodec
package import NIOCore
package import Protection

/// The mapping of one backend.
package struct Mapping: Sendable, Equatable {
    /// The operator's name for the mapping, for instance `matrix`. For reports only; no envelope depends on it.
    package var name: String
    package var account: AccountSource
    /// The lookup of a conversation's members; nil if messages name their recipients.
    package var members: MembersSource?
    /// The lookup of a message's conversation; nil if the backend has none.
    package var messagesByID: MessageSource?
    /// The lookup of a conversation by its id, which confirms that a request names none in another way.
    package var conversationsByID: ConversationSource?
    /// The routes. The first that matches is used.
    package var routes: [Mapping.Route] { didSet { index = RouteIndex(routes) } }
    private(set) var index: RouteIndex
    /// The kinds of WebSocket messages. The first that matches is used.
    package var frames: [FrameRoute] {
        didSet {
            logsInByFrames = frames.contains { $0.login != nil }
            editsByFrames = Self.edits(frames)
            frameNames = FrameNames(frames)
        }
    }
    /// Whether WebSocket messages carry logins.
    package private(set) var logsInByFrames: Bool
    /// Whether clients' WebSocket messages edit earlier messages.
    private(set) var editsByFrames: Bool
    /// The members of clients' WebSocket messages on which decisions depend; nil if these may be any.
    private(set) var frameNames: FrameNames?
    package var refusal: RefusalForm
    /// The notice for WebSocket clients when the backend has assigned an id to a message with a local id.
    ///
    /// JSON with `{local_id}` and `{message_id}` in it; nil if clients need no notice.
    package var merged: String?
    /// What WebSocket clients get in place of a message that they must not see; nil if that is a refusal, or nothing.
    package var withheld: WithheldForm?
    /// The web pages that may read the gateway's own answers; none if nil.
    package var crossOrigin: CrossOrigin?

    package init(
        name: String, account: AccountSource, members: MembersSource? = nil, routes: [Mapping.Route] = [],
        frames: [FrameRoute] = [], refusal: RefusalForm = RefusalForm()
    ) {
        self.name = name
        self.account = account
        self.members = members
        self.routes = routes
        index = RouteIndex(routes)
        self.frames = frames
        logsInByFrames = frames.contains { $0.login != nil }
        editsByFrames = Self.edits(frames)
        frameNames = FrameNames(frames)
        self.refusal = refusal
    }

    private static func edits(_ frames: [FrameRoute]) -> Bool {
        frames.contains { $0.shapes.contains { $0.edited != nil } }
    }
}

/// How the gateway finds the account of a request: the client's credential, and a lookup at the backend.
///
/// The gateway ignores an account name that the client claims.
package struct AccountSource: Sendable, Equatable {
    /// A place of the credential in a request.
    package enum Credential: Sendable, Equatable {
        case header(String)
        case query(String)
        case cookie(String)
    }

    package var credentials: [Credential]
    /// The target of the GET that returns the owner of a credential.
    package var target: String
    /// The path of the account's name in the answer.
    package var name: JSONPath
    /// The query name by which an application service acts for another user; nil if the backend has none.
    ///
    /// The lookup repeats it.
    package var actingAs: String?

    package init(credentials: [Credential], target: String, name: JSONPath) {
        (self.credentials, self.target, self.name) = (credentials, target, name)
    }
}

/// The lookup of a conversation's members.
package struct MembersSource: Sendable, Equatable {
    /// The target of a GET, with `{conversation}` in it.
    package var target: String
    /// The path of the members in the answer.
    package var accounts: JSONPath
    /// Whether the account is the name of the member at the path, not its value.
    package var areNames: Bool
    /// How the members come in pages; nil if one answer has all.
    package var paging: MemberPaging?

    package init(target: String, accounts: JSONPath, areNames: Bool) {
        (self.target, self.accounts, self.areNames) = (target, accounts, areNames)
    }
}

/// The lookup of the conversation of a message.
package struct MessageSource: Sendable, Equatable {
    /// The target of a GET, with `{message_id}` in it.
    package var target: String
    /// The path of the conversation in the answer.
    package var conversation: JSONPath

    package init(target: String, conversation: JSONPath) {
        (self.target, self.conversation) = (target, conversation)
    }
}

/// The lookup of a conversation by its id.
package struct ConversationSource: Sendable, Equatable {
    /// The target of a GET, with `{conversation}` in it.
    package var target: String
    /// The path of the id in the answer.
    package var id: JSONPath

    package init(target: String, id: JSONPath) { (self.target, self.id) = (target, id) }
}

extension Mapping {
    /// The purpose of a request.
    package enum Label: String, Sendable, CaseIterable {
        /// Carries messages of people, which are sealed.
        case content
        /// The answer holds earlier messages.
        case history
        /// The answer holds new messages.
        case sync
        /// Carries a search term in the clear: refused if protection is demanded, else like ``history``.
        case search
        /// Changes something without text: forwarded, in order after queued writes to which it refers.
        case control
        /// Carries files in a form that is not sealed: an upload is refused if protection is demanded.
        case media
        /// The body is one file, which is sealed.
        case upload
        /// The answer is one file, which is opened if it is sealed.
        case download
        /// Carries no messages.
        case passthrough
        /// Refused if protection is demanded.
        case refused

        /// Whether the answer holds earlier messages.
        package var isHistory: Bool { self == .history || self == .search }
    }

    /// One kind of request.
    package final class Route: Sendable, Equatable {
        /// When and how a write is answered.
        package enum Answer: Sendable, Equatable {
            /// The client waits for the backend's answer.
            case whenDone
            /// The client is answered when the write is stored: with this status and body, `{local_id}` in it.
            case atOnce(status: Int, body: String)
        }

        /// The allowed methods; any if empty.
        package let methods: [String]
        package let path: PathPattern
        package let query: [QueryCondition]
        package let label: Mapping.Label
        /// The shape of the message in the request. In an upload that is an object of the form's fields that are texts.
        package let request: MessageShape?
        /// The shapes of messages in the answer.
        package let response: [MessageShape]
        /// The path of the message's backend id in the answer to a write.
        package let remoteID: JSONPath?
        /// The client's id of the written message.
        package let localID: ValueSource?
        /// The conversation of control requests, which have no shape.
        package let conversation: ValueSource?
        /// The ids of other messages to which the request refers.
        package let references: [ValueSource]
        package let answer: Answer
        /// The list of members that clients ask for in answers; nil if they cannot choose.
        package let chosenMembers: ChosenMembers?
        /// What an ``Label/upload`` or a ``Label/download`` says about its file.
        package let file: FilePlaces
        /// The kinds of content that requests carry beside messages. The strictest treatment of them counts.
        package let kinds: [ContentKind]
        /// Places of the body whose content is refused if protection is demanded.
        package let parts: [Part]
        /// The last segment of the path in the body; nil if the backend goes by the path.
        package let repeated: RepeatedSegment?

        package init(
            methods: [String], path: PathPattern, query: [QueryCondition] = [], label: Mapping.Label,
            request: MessageShape? = nil, response: [MessageShape] = [], remoteID: JSONPath? = nil,
            localID: ValueSource? = nil, conversation: ValueSource? = nil, references: [ValueSource] = [],
            answer: Answer = .whenDone, chosenMembers: ChosenMembers? = nil, file: FilePlaces = FilePlaces(),
            kinds: [ContentKind] = [], parts: [Part] = [], repeated: RepeatedSegment? = nil
        ) {
            self.repeated = repeated
            (self.chosenMembers, self.file) = (chosenMembers, file)
            (self.kinds, self.parts) = (kinds, parts)
            self.methods = methods
            self.path = path
            self.query = query
            self.label = label
            self.request = request
            self.response = response
            self.remoteID = remoteID
            self.localID = localID
            self.conversation = conversation
            self.references = references
            self.answer = answer
        }

        /// Where a request has its conversation; nil if it names none.
        var conversationSource: ValueSource? { conversation ?? request?.conversation }

        /// The place of the message's backend id in the answer to a write; nil if the answer has none.
        package var remoteIDSource: RemoteIDSource? {
            remoteID.map { RemoteIDSource($0, parsing: ((request.map { [$0] } ?? []) + response).parsedPaths) }
        }

        package static func == (left: Route, right: Route) -> Bool {
            left === right
                || left.methods == right.methods && left.path == right.path && left.query == right.query
                    && left.label == right.label && left.request == right.request && left.response == right.response
                    && left.remoteID == right.remoteID && left.localID == right.localID
                    && left.conversation == right.conversation && left.references == right.references
                    && left.answer == right.answer && left.chosenMembers == right.chosenMembers
                    && left.file == right.file && left.kinds == right.kinds && left.parts == right.parts
                    && left.repeated == right.repeated
        }
    }
}

/// What the request for a file says about it.
package struct FilePlaces: Sendable, Equatable {
    /// The query with the file's name in an upload, which is sealed with the file; nil if there is none.
    package var name: String?
    /// The target of a GET for the whole file, with names of the path in braces, if the answer is a thumbnail that the
    /// backend makes; nil if it is no thumbnail.
    package var whole: String?
    /// The parts that the multipart form of an upload may have, by their names; nil if an upload is no form.
    ///
    /// ``anyPart`` stands for every other name.
    package var parts: [String: Part]?
    /// Whether a download needs no login, because its address is a secret for those who may read it.
    package var needsNoLogin = false

    /// What is done with a part of a form.
    package enum Part: String, Sendable, CaseIterable {
        /// It is the file, which is sealed with its name and type.
        case file
        /// It is a text of the message that shows the files, which is sealed. The route's request has its shape.
        case text
        /// It is a text that the backend reads.
        case pass
    }

    package static let anyPart = "*"

    package init(name: String? = nil, whole: String? = nil, parts: [String: Part]? = nil) {
        (self.name, self.whole, self.parts) = (name, whole, parts)
    }
}

/// A list of members to which a client reduces the messages in answers, for instance `event_fields` of Matrix.
///
/// Without flag and envelope a sealed message looks like a plain one, so the gateway adds what it needs.
package struct ChosenMembers: Sendable, Equatable {
    /// The name in the query whose value is the document with the list; nil if the body is.
    package var query: String?
    /// The path of the list.
    package var list: JSONPath
    /// The names to add.
    package var needed: [String]

    package init(query: String?, list: JSONPath, needed: [String]) {
        (self.query, self.list, self.needed) = (query, list, needed)
    }

    /// A document with the needed names in its list; nil if it has no list, or all of them.
    package func added(to document: JSONDocument) -> ByteBuffer? {
        guard let list = try? document.one(list), document.kind(list) == .array else { return nil }
        var names = document.children(list).map { JSONFragment(document, $0) }
        let missing = needed.filter { name in !document.children(list).contains { document.hasText(name, $0) } }
        guard !missing.isEmpty else { return nil }
        names += missing.map { .string($0) }
        var edits = JSONEdits(document)
        edits.replace(list, with: .array(names))
        return try? edits.apply()
    }

    /// A target with the needed names in its list; nil if nothing has to change.
    package func added(to head: RequestHead) -> String? {
        guard let query, let text = head.query, case .single(let value) = RequestQuery(text)[query],
            let document = try? JSONDocument(ByteBuffer(string: value)), let edited = added(to: document)
        else { return nil }
        let parts = text.split(separator: "&", omittingEmptySubsequences: false).map { part in
            guard case .single = RequestQuery(part)[query] else { return String(part) }
            return PercentCoding.segment(query) + "=" + PercentCoding.segment(String(buffer: edited))
        }
        return head.path + "?" + parts.joined(separator: "&")
    }
}

/// The place of a message's backend id in an answer, as the queue stores it: the path, then those of parsed strings, one
/// a line.
package struct RemoteIDSource: Sendable, Equatable {
    package let path: JSONPath
    package let parsed: [JSONPath]

    package init(_ path: JSONPath, parsing parsed: [JSONPath] = []) { (self.path, self.parsed) = (path, parsed) }

    /// Reads the stored form; nil if it is not valid.
    package init?(_ stored: some Sequence<UInt8>) {
        let lines = String(decoding: Array(stored), as: UTF8.self).split(separator: "\n")
        let paths = lines.compactMap { try? JSONPath(String($0)) }
        guard let first = paths.first, paths.count == lines.count else { return nil }
        self.init(first, parsing: Array(paths.dropFirst()))
    }

    package var stored: [UInt8] { Array(([path] + parsed).map(\.text).joined(separator: "\n").utf8) }

    /// The id in an answer; nil if there is none.
    package func id(in document: JSONDocument) -> String? {
        guard let document = try? document.parsing(parsed), let place = try? document.one(path) else { return nil }
        return try? document.identifier(place, path.text)
    }
}

/// A condition of a route on the query.
package struct QueryCondition: Sendable, Equatable {
    package enum Test: Sendable, Equatable {
        case present
        case absent
        case equals(String)
    }

    package var name: String
    package var test: Test

    package init(_ name: String, _ test: Test) { (self.name, self.test) = (name, test) }
}

/// One kind of WebSocket message.
package struct FrameRoute: Sendable, Equatable {
    package enum Direction: String, Sendable, CaseIterable {
        case fromClient = "from-client"
        case fromBackend = "from-backend"
    }

    package var direction: Direction
    /// Matches if this path finds a value, for instance `$[?type == "message"]`; always if nil.
    package var when: JSONPath?
    package var label: Mapping.Label
    package var shapes: [MessageShape]
    /// The login in such messages, which are labelled ``Mapping/Label/passthrough``; nil if they have none.
    package var login: FrameLogin?
    /// The kinds of content that such messages carry beside messages of people. The strictest treatment of them counts.
    package var kinds: [ContentKind]
    /// The backend's answer to such messages; nil if it has none, or none that can be told from those to others.
    package var acknowledgement: Acknowledgement?

    package init(
        direction: FrameRoute.Direction, when: JSONPath?, label: Mapping.Label, shapes: [MessageShape] = [],
        login: FrameLogin? = nil, kinds: [ContentKind] = [], acknowledgement: Acknowledgement? = nil
    ) {
        (self.kinds, self.acknowledgement) = (kinds, acknowledgement)
        (self.direction, self.when, self.label, self.shapes) = (direction, when, label, shapes)
        self.login = login
    }
}

/// The source of a value.
package enum ValueSource: Sendable, Equatable {
    /// A segment of the path, by its name in the route.
    case capture(String)
    case query(String)
    /// A path in the message.
    case message(JSONPath)
    /// A path in the container of the message.
    case container(JSONPath)
    /// The name of the container of the message.
    case containerName
    /// The conversation of the message whose id is a segment of the path, by the segment's name in the route.
    case ofMessage(String)
}

/// How an envelope stands in a text as `?PAWL:BASE64.`, which needs no flag.
package enum EnvelopeArmour: String, Sendable, CaseIterable {
    /// The text is plain.
    case text
    /// The text is HTML that the backend has made of the sender's text.
    case html
    /// As in ``html`` if the envelope is in an HTML element, else as in ``text``.
    case detect
}

/// The positions of messages in a document, and of the parts of a message.
///
/// A reference to its parts, because there are many, and each message that is found keeps its shape.
@dynamicMemberLookup
package struct MessageShape: Sendable, Equatable {
    package struct Parts: Sendable, Equatable {
        /// Values that hold the messages of one conversation each.
        package var containers: JSONPath
        /// The messages, from a container.
        package var messages: JSONPath
        /// The conversation of a message.
        package var conversation: ValueSource
        /// The object with text, flag and envelope, from the message; nil if it is the message itself.
        ///
        /// With it, sealed values have the same paths in the request and in all answers.
        package var content: JSONPath?
        // In that object:
        package var text: JSONPath
        /// Values that are sealed together with the text, and removed from the message.
        package var also: [JSONPath]
        /// The members of the object that are not sealed; nil if only ``text`` and ``also`` are sealed.
        ///
        /// If set, all other members are sealed, except those into which the paths here lead.
        package var kept: Set<String>?
        /// The paths of sealed values that clients show beside the text, which are marked with it; nil if all strings are.
        package var shown: Set<String>?
        /// The flag that the message is encrypted; nil if ``armour`` shows it.
        package var flag: JSONPath?
        /// The path of the envelope; nil if it replaces the text.
        package var envelope: JSONPath?
        /// The text beside an envelope in its own field, for clients that bypass the gateway.
        package var fallback: String
        /// Further texts beside the fallback, at sealed paths, so that they are removed when the message is opened.
        package var fallbackParts: [FallbackPart] = []
        /// Where the message lists whom it mentions; nil if the backend has no such list.
        package var mentions: MentionFields?
        /// The strings of the document that hold JSON documents, in which the other paths continue.
        package var parsed: [JSONPath] = []
        /// The forms that a request's body may have.
        package var bodies: Set<BodyForm> = [.json]
        /// How an envelope stands in the text; nil if it is Base64 alone, or has a field of its own.
        package var armour: EnvelopeArmour?
        /// How an envelope may stand in the text of a message that has none in ``envelope``; nil if it may not.
        package var alternative: EnvelopeArmour?
        /// Links of the text that stay in the clear beside the envelope; nil if all are sealed.
        package var links: LinkForm?
        /// Members of sealed values that the backend makes itself, which stay when the message is opened, by the value's path.
        package var made: [String: Set<String>] = [:]
        /// Further texts of a request, which become lines of its text.
        package var joined: [JSONPath] = []
        /// Whether a request may have no text, and is sealed with what else it has.
        package var textIsOptional = false
        /// The kind of the messages; nil if they are messages of people. If it is not sealed, they are not looked for.
        package var kind: ContentKind?
        /// Conditions of values that are not such messages although the other paths lead to them.
        package var exceptions: [JSONPath] = []
        /// The longest value that the backend accepts where the envelope stands; nil if the mapping names none.
        package var limit: TextLimit?
        // In the message:
        /// The author; nil in a request, where it is the sending account.
        package var sender: JSONPath?
        /// The recipients; nil if the message does not name them.
        package var recipients: JSONPath?
        package var remoteID: JSONPath?
        package var localID: JSONPath?
        /// The id of the earlier message that a request edits; nil if it writes a new one.
        ///
        /// The backend may go by this id alone, so that message must be in the conversation that the request names.
        package var edited: JSONPath?
        /// Whether a request may name its conversation in another way than by its id, so that the backend has to confirm
        /// that it has not.
        package var isConfirmed = false
        /// Whether the messages may be older than their conversation's protection, even in a ``Mapping/Label/sync`` answer.
        package var isHistory = false
    }

    private final class Box: Sendable {
        let parts: Parts
        /// The names of the members that are not sealed because of ``Parts/kept``: those, and all that have paths.
        let named: Set<String>
        let names: JSONNames

        init(_ parts: Parts) {
            self.parts = parts
            let paths = [parts.text] + [parts.flag, parts.envelope].compactMap(\.self) + parts.also + parts.joined
            named = (parts.kept ?? []).union(paths.compactMap(\.firstMember))
            names = JSONNames(named)
        }
    }

    private var box: Box

    package init(
        containers: JSONPath, messages: JSONPath, conversation: ValueSource, text: JSONPath, also: [JSONPath] = [],
        flag: JSONPath?, envelope: JSONPath? = nil, fallback: String = "", sender: JSONPath? = nil,
        recipients: JSONPath? = nil, remoteID: JSONPath? = nil, localID: JSONPath? = nil, content: JSONPath? = nil,
        kept: Set<String>? = nil
    ) {
        box = Box(
            Parts(
                containers: containers, messages: messages, conversation: conversation, content: content, text: text,
                also: also, kept: kept, flag: flag, envelope: envelope, fallback: fallback, sender: sender,
                recipients: recipients, remoteID: remoteID, localID: localID))
    }

    package subscript<Value>(dynamicMember member: KeyPath<Parts, Value>) -> Value { box.parts[keyPath: member] }

    package subscript<Value>(dynamicMember member: WritableKeyPath<Parts, Value>) -> Value {
        get { box.parts[keyPath: member] }
        set {
            var parts = box.parts
            parts[keyPath: member] = newValue
            box = Box(parts)
        }
    }

    /// Whether a member is sealed because ``Parts/kept`` does not name it.
    ///
    /// ``namesOfOthers`` are the names of all others.
    func takesMember(_ name: String) -> Bool { self.kept != nil && !box.named.contains(name) }

    var namesOfOthers: JSONNames { box.names }

    package static func == (left: Self, right: Self) -> Bool {
        left.box === right.box || left.box.parts == right.box.parts
    }
}

/// A text beside the fallback, for clients that bypass the gateway.
package struct FallbackPart: Sendable, Equatable {
    package var path: JSONPath
    package var text: String

    package init(path: JSONPath, text: String) { (self.path, self.text) = (path, text) }
}

/// The form of the gateway's refusals, in the backend's own style, so that clients understand them.
package struct RefusalForm: Sendable, Equatable {
    /// What differs for some codes.
    package struct Special: Sendable, Equatable {
        package var status: Int?
        package var body: String?

        package init(status: Int? = nil, body: String? = nil) { (self.status, self.body) = (status, body) }
    }

    /// The status of refusals by the policy.
    package var status: Int
    package var contentType: String
    /// JSON, with `{reason}` inside a string for the text and `{code}` for the gateway's code.
    package var body: String
    /// The form of a WebSocket message, which may also contain `{local_id}`; ``body`` is used if nil.
    package var frame: String?
    /// The values of a refused WebSocket message that stand in ``frame``, for instance the number of the request.
    package var replyTo: CopiedValues?
    /// Fields of every refusal over HTTP.
    package var headers = HeaderFields()
    /// Other forms, by the gateway's code.
    package var codes: [String: Special] = [:]

    package init(
        status: Int = 403, contentType: String = "application/json",
        body: String = #"{"error":"{code}","message":"{reason}"}"#, frame: String? = nil
    ) {
        (self.status, self.contentType, self.body, self.frame) = (status, contentType, body, frame)
    }
}
