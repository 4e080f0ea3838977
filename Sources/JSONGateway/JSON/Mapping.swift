// The operator's description of a backend's API: which requests carry messages, and where in them the parts are.
// `MappingFile` reads it from a file.

package import JSONCodec

/// The mapping of one backend.
package struct Mapping: Sendable, Equatable {
    /// The operator's name for the mapping, for instance `matrix`. For reports only; no envelope depends on it.
    package var name: String
    package var account: AccountSource
    /// The lookup of a conversation's members; nil if messages name their recipients.
    package var members: MembersSource?
    /// The routes. The first that matches is used.
    package var routes: [Mapping.Route] { didSet { index = RouteIndex(routes) } }
    private(set) var index: RouteIndex
    /// The kinds of WebSocket messages. The first that matches is used.
    package var frames: [FrameRoute]
    package var refusal: RefusalForm
    /// The notice for WebSocket clients when the backend has assigned an id to a message with a local id.
    ///
    /// JSON with `{local_id}` and `{message_id}` in it; nil if clients need no notice.
    package var merged: String?
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
        self.refusal = refusal
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

    package init(target: String, accounts: JSONPath, areNames: Bool) {
        (self.target, self.accounts, self.areNames) = (target, accounts, areNames)
    }
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
        /// Carries files: an upload is refused if protection is demanded.
        case media
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
        /// The shape of the message in the request.
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

        package init(
            methods: [String], path: PathPattern, query: [QueryCondition] = [], label: Mapping.Label,
            request: MessageShape? = nil, response: [MessageShape] = [], remoteID: JSONPath? = nil,
            localID: ValueSource? = nil, conversation: ValueSource? = nil, references: [ValueSource] = [],
            answer: Answer = .whenDone
        ) {
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

        package static func == (left: Route, right: Route) -> Bool {
            left === right
                || left.methods == right.methods && left.path == right.path && left.query == right.query
                    && left.label == right.label && left.request == right.request && left.response == right.response
                    && left.remoteID == right.remoteID && left.localID == right.localID
                    && left.conversation == right.conversation && left.references == right.references
                    && left.answer == right.answer
        }
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

    package init(direction: Direction, when: JSONPath?, label: Mapping.Label, shapes: [MessageShape] = []) {
        (self.direction, self.when, self.label, self.shapes) = (direction, when, label, shapes)
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
}

/// The positions of messages in a document, and of the parts of a message.
package struct MessageShape: Sendable, Equatable {
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
    /// The flag that the message is encrypted.
    package var flag: JSONPath
    /// The path of the envelope; nil if it replaces the text.
    package var envelope: JSONPath?
    /// The text beside an envelope in its own field, for clients that bypass the gateway.
    package var fallback: String
    // In the message:
    /// The author; nil in a request, where it is the sending account.
    package var sender: JSONPath?
    /// The recipients; nil if the message does not name them.
    package var recipients: JSONPath?
    package var remoteID: JSONPath?
    package var localID: JSONPath?
    /// Whether the messages may be older than their conversation's protection, even in a ``Mapping/Label/sync`` answer.
    package var isHistory = false

    package init(
        containers: JSONPath, messages: JSONPath, conversation: ValueSource, text: JSONPath, also: [JSONPath] = [],
        flag: JSONPath, envelope: JSONPath? = nil, fallback: String = "", sender: JSONPath? = nil,
        recipients: JSONPath? = nil, remoteID: JSONPath? = nil, localID: JSONPath? = nil, content: JSONPath? = nil,
        kept: Set<String>? = nil
    ) {
        self.content = content
        self.kept = kept
        self.containers = containers
        self.messages = messages
        self.conversation = conversation
        self.text = text
        self.also = also
        self.flag = flag
        self.envelope = envelope
        self.fallback = fallback
        self.sender = sender
        self.recipients = recipients
        self.remoteID = remoteID
        self.localID = localID
    }
}

/// The form of the gateway's refusals, in the backend's own style, so that clients understand them.
package struct RefusalForm: Sendable, Equatable {
    package var status: Int
    package var contentType: String
    /// JSON, with `{reason}` inside a string for the text and `{code}` for the gateway's code.
    package var body: String
    /// The form of a WebSocket message, which may also contain `{local_id}`; ``body`` is used if nil.
    package var frame: String?

    package init(
        status: Int = 403, contentType: String = "application/json",
        body: String = #"{"error":"{code}","message":"{reason}"}"#, frame: String? = nil
    ) {
        (self.status, self.contentType, self.body, self.frame) = (status, contentType, body, frame)
    }
}
