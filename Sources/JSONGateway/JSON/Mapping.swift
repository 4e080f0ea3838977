// What an operator says about a backend's API: which requests carry what people write, and where in them it stands.
// Reading it from a file is the configuration's business.

package import JSONCodec

/// The mapping of one backend.
package struct Mapping: Sendable, Equatable {
    /// What the operator calls it: `matrix`. For reports; nothing is sealed under it.
    package var name: String
    package var account: AccountSource
    /// How the members of a conversation are asked for; nothing where messages name their recipients.
    package var members: MembersSource?
    /// The first route that fits counts.
    package var routes: [Mapping.Route] { didSet { index = RouteIndex(routes) } }
    private(set) var index: RouteIndex
    /// Messages of WebSocket connections; the first that fits counts.
    package var frames: [FrameRoute]
    package var refusal: RefusalForm
    /// What a WebSocket client is told when the backend has named a message that was answered at once: JSON, with `{local_id}` and
    /// `{message_id}` in it; nothing where clients find out themselves.
    package var merged: String?
    /// Which pages in browsers may read the gateway's own answers; none if nil.
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

/// How the gateway learns whose a request is: what the client shows, and a request that asks the backend what it thinks
/// of that. A name that a client claims counts for nothing.
package struct AccountSource: Sendable, Equatable {
    /// Where a client shows that it has logged in.
    package enum Credential: Sendable, Equatable {
        case header(String)
        case query(String)
        case cookie(String)
    }

    package var credentials: [Credential]
    /// The target of a GET that answers who has this credential.
    package var target: String
    /// Where the account's name stands in the answer.
    package var name: JSONPath
    /// The query by which an application service writes in somebody else's name. It goes into the question; nil if the backend
    /// has no such thing.
    package var actingAs: String?

    package init(credentials: [Credential], target: String, name: JSONPath) {
        (self.credentials, self.target, self.name) = (credentials, target, name)
    }
}

/// How the members of a conversation are asked for.
package struct MembersSource: Sendable, Equatable {
    /// The target of a GET, `{conversation}` in it.
    package var target: String
    /// Where the members stand in the answer.
    package var accounts: JSONPath
    /// Whether the account is the name of the value there, not the value.
    package var areNames: Bool

    package init(target: String, accounts: JSONPath, areNames: Bool) {
        (self.target, self.accounts, self.areNames) = (target, accounts, areNames)
    }
}

extension Mapping {
    /// What a request is for.
    package enum Label: String, Sendable, CaseIterable {
        /// It carries what people write: sealed.
        case content
        /// Its answer holds what people wrote some time ago.
        case history
        /// Its answer holds what people have just written.
        case sync
        /// It says what somebody looks for, which the backend would read: refused where protection is due, else ``history``.
        case search
        /// It changes something that is no text: passes, in the order of the conversation where it names a message.
        case control
        /// It carries files: refused where protection is due.
        case media
        /// It has nothing to do with what people write.
        case passthrough
        /// It never passes where protection is due.
        case refused

        /// Whether its answer holds what people wrote some time ago.
        package var isHistory: Bool { self == .history || self == .search }
    }

    /// One kind of request.
    package final class Route: Sendable, Equatable {
        /// How a client that writes is answered.
        package enum Answer: Sendable, Equatable {
            /// It waits for the backend's answer.
            case whenDone
            /// It is answered as soon as the write is stored: with this status and body, `{local_id}` in it.
            case atOnce(status: Int, body: String)
        }

        /// The methods; any where there are none.
        package let methods: [String]
        package let path: PathPattern
        package let query: [QueryCondition]
        package let label: Mapping.Label
        /// What people write, in the request.
        package let request: MessageShape?
        /// What people wrote, in the answer.
        package let response: [MessageShape]
        /// In the answer to a write: the backend's id of the message.
        package let remoteID: JSONPath?
        /// The client's id of what it writes.
        package let localID: ValueSource?
        /// The conversation, for control requests, which have no shape.
        package let conversation: ValueSource?
        /// Ids of other messages that the request names.
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

/// What a query has to be like for a route to fit.
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
    /// It fits where this leads somewhere: `$[?type == "message"]`.
    package var when: JSONPath?
    package var label: Mapping.Label
    package var shapes: [MessageShape]

    package init(direction: Direction, when: JSONPath?, label: Mapping.Label, shapes: [MessageShape] = []) {
        (self.direction, self.when, self.label, self.shapes) = (direction, when, label, shapes)
    }
}

/// Where something stands.
package enum ValueSource: Sendable, Equatable {
    /// A part of the path, by the name that the route gives it.
    case capture(String)
    case query(String)
    /// In the message.
    case message(JSONPath)
    /// In the container around the message.
    case container(JSONPath)
    /// The name of the container around the message.
    case containerName
}

/// Where in a document messages stand, and what in them is what.
package struct MessageShape: Sendable, Equatable {
    /// Values that hold the messages of one conversation each.
    package var containers: JSONPath
    /// In a container: the messages.
    package var messages: JSONPath
    /// The conversation that a message belongs to.
    package var conversation: ValueSource
    /// In a message: the object that text, flag and envelope stand in, whatever is around it; the message itself where
    /// nothing is said. So what is sealed has the same names in the request and in all answers.
    package var content: JSONPath?
    // In that object:
    package var text: JSONPath
    /// What is sealed together with the text, and taken out of the message.
    package var also: [JSONPath]
    /// Where this is said, every member of the object is sealed but these and those that the paths here lead into.
    package var kept: Set<String>?
    /// The mark that the message is encrypted.
    package var flag: JSONPath
    /// Where the envelope goes; in the place of the text where nothing is said.
    package var envelope: JSONPath?
    /// What stands in the place of the text then, for clients that read past the gateway.
    package var fallback: String
    // In the message:
    /// Who wrote it. Nothing in a request: whoever sends it.
    package var sender: JSONPath?
    /// Whom it is for, where the message says so.
    package var recipients: JSONPath?
    package var remoteID: JSONPath?
    package var localID: JSONPath?
    /// Whether they may be older than what protects their conversation, although the answer is one of ``Mapping/Label/sync``.
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

/// How a backend of this kind says no, so that clients understand it.
package struct RefusalForm: Sendable, Equatable {
    package var status: Int
    package var contentType: String
    /// JSON, with `{reason}` inside a string for the words and `{code}` for the gateway's word for it.
    package var body: String
    /// The same as a WebSocket message, with `{local_id}` besides; ``body`` where nothing is said.
    package var frame: String?

    package init(
        status: Int = 403, contentType: String = "application/json",
        body: String = #"{"error":"{code}","message":"{reason}"}"#, frame: String? = nil
    ) {
        (self.status, self.contentType, self.body, self.frame) = (status, contentType, body, frame)
    }
}
