// Events and actions of an exchange, which is one request of a client and its answer.

package import Envelope
package import HTTPCodec
package import JSONCodec
package import NIOCore
package import Protection
package import RequestQueue
package import Vault

/// An event of an exchange.
package enum ExchangeEvent: Sendable {
    /// The head of the client's request. Always the first event.
    case request(RequestHead)
    /// The whole body of the request, after ``ExchangeAction/collectRequest(limit:)``.
    case requestBody(ByteBuffer)
    /// The request's body exceeds the limit of ``ExchangeAction/collectRequest(limit:)``. The rest is not read.
    case requestTooLong
    /// The texts of a form whose files are sealed and sent, after ``ExchangeAction/sealRequest(_:_:)``. The request ends
    /// with ``ExchangeAction/endRequest(_:)``. Not after ``response(_:)``.
    case formTexts(FormTexts)
    /// The head of the backend's answer. Not after ``ExchangeAction/pass(_:)``.
    case response(ResponseHead)
    /// The whole body of the answer, after ``ExchangeAction/collectResponse(limit:)``.
    case responseBody(ByteBuffer)
    case responseTooLong
    /// The beginning of the answer's body, after ``ExchangeAction/collectBeginning(count:)``. Shorter only if it is the whole body.
    case responseBeginning(ByteBuffer)
    /// The memory for collected bodies is used up. The body that is being collected is not complete.
    case noRoom
    /// The backend is unreachable, or has failed before its answer was forwarded.
    case upstreamFailed
    /// The backend's answer to a lookup.
    case found(Lookup.ID, ResponseHead, ByteBuffer)
    /// A lookup got no answer.
    case notFound(Lookup.ID)
    /// A reply of the participants. Also answers ``ExchangeAction/findWrite(_:_:by:)``, and ``ExchangeAction/enqueue(_:)``
    /// unless the client waits for the outcome of the write.
    case vault(JSONReply)
    /// How a write ended, after ``ExchangeAction/enqueue(_:)`` or ``ExchangeAction/await(_:)``.
    case written(WriteOutcome)
    /// Both devices of a relay are there.
    case relayMet
    /// The device may not wait for the other one.
    case relayRefused(ControlAnswer.Fault)
    /// The time of the last ``ExchangeAction/wake(at:)`` is reached.
    case woken
}

extension ExchangeEvent {
    /// The kind of the event, for the log.
    var name: String {
        switch self {
        case .request: "request"
        case .requestBody: "requestBody"
        case .requestTooLong: "requestTooLong"
        case .formTexts: "formTexts"
        case .response: "response"
        case .responseBody: "responseBody"
        case .responseTooLong: "responseTooLong"
        case .responseBeginning: "responseBeginning"
        case .noRoom: "noRoom"
        case .upstreamFailed: "upstreamFailed"
        case .found(let id, _, _): "found(\(id))"
        case .notFound(let id): "notFound(\(id))"
        case .vault(let reply): "vault(\(reply.name))"
        case .written: "written"
        case .relayMet: "relayMet"
        case .relayRefused: "relayRefused"
        case .woken: "woken"
        }
    }
}

/// An action of an exchange. The adapter performs actions in order.
package enum ExchangeAction: Sendable {
    /// Forwards the request with this head, and its answer, unchanged.
    ///
    /// The exchange gets no further events except ``ExchangeEvent/upstreamFailed``.
    case pass(RequestHead)
    /// Forwards the request with this head, and reports the head of its answer.
    case passRequest(RequestHead)
    /// Forwards the request with this head, its body sealed, and reports the head of its answer.
    case sealRequest(RequestHead, BodySealer)
    /// Sends the end of the request's body, after ``ExchangeEvent/formTexts(_:)``.
    case endRequest(ByteBuffer)
    /// Collects the whole body of the request, up to a limit in bytes.
    case collectRequest(limit: Int)
    /// Sends this request instead of the client's, and reports the head of its answer.
    case send(RequestHead, ByteBuffer)
    /// Forwards the answer with this head.
    case passResponse(ResponseHead)
    /// Collects the whole body of the answer, up to a limit in bytes.
    case collectResponse(limit: Int)
    /// Collects the beginning of the answer's body, at least so many bytes.
    case collectBeginning(count: Int)
    /// Forwards the answer with this head, its body opened.
    ///
    /// - Parameter length: bytes of the opened body; nil if unknown.
    case openResponse(ResponseHead, SealedFile.Opener, length: Int?)
    /// Sends this answer. The adapter sets `Content-Length`.
    case respond(ResponseHead, ByteBuffer)
    /// Sends this answer of the backend, in which messages were read. It may be compressed, but for these parts of the
    /// body: their content must not affect the length. Nil if they are unknown; then it is not compressed.
    case deliver(ResponseHead, ByteBuffer, hiding: [Range<Int>]?)
    /// Answers 101 with this head, and relays a WebSocket: inspected by the session, or unread if nil.
    case upgrade(ResponseHead, WebSocketMachine?)
    /// Sends a lookup to the backend, with the client's credential.
    case look(Lookup)
    case submit(JSONJob)
    /// Reports that the backend accepts this credential of the account, so that waiting writes can be sent with it.
    case loggedIn(AccountID, Credential)
    /// Asks the queue for an earlier write of the account with this key.
    case findWrite(AccountID, WriteKey, by: Credential)
    /// Queues a write. Requests ``ExchangeEvent/written(_:)`` when it ends, unless it is answered at once.
    case enqueue(QueuedWrite)
    /// Requests ``ExchangeEvent/written(_:)`` when this write ends.
    case await(RequestToken)
    /// Requests ``WriteOutcome/waits`` as soon as the awaited write is stored.
    case stopWaiting
    /// Waits for the other device: ``ExchangeEvent/relayMet`` or ``ExchangeEvent/relayRefused(_:)`` follows.
    case joinRelay(RelayCall)
    /// Answers 101 with this head, and relays bytes between the two devices.
    case beginRelay(ResponseHead, RelayCall)
    /// Answers 101 with this head, and sends the messages of a device over the WebSocket.
    indirect case beginMailSocket(ResponseHead, MailSocketMachine)
    /// Requests ``ExchangeEvent/woken`` at a time in monotonic nanoseconds.
    case wake(at: Int64)
    /// Reports a defect of the gateway, for the log.
    case report(UnexpectedEvent)
}

/// An event that cannot come in a machine's state: a defect of the gateway. It holds no data of a request.
package struct UnexpectedEvent: Error, CustomStringConvertible {
    package let event: String
    /// The machine and its state.
    package let machine: String

    init(_ event: String, of machine: String) { (self.event, self.machine) = (event, machine) }

    package var description: String { "Defect of the gateway: unexpected event \(event) of \(machine)." }
}

/// One of the gateway's own requests to the backend.
package struct Lookup: Sendable, Equatable {
    package enum ID: Hashable, Sendable {
        case account
        case members
        /// The account of a login inside a WebSocket.
        case login
        case message
        case conversation
    }

    package var id: ID
    package var head: RequestHead
    /// Maximum size of the answer's body, in bytes.
    package var limit: Int

    package init(_ id: ID, _ head: RequestHead, limit: Int = 1 << 20) {
        (self.id, self.head, self.limit) = (id, head, limit)
    }
}

/// A write in the queue, of this request or of an earlier equal one.
package struct KnownWrite: Sendable, Equatable {
    package var token: RequestToken
    /// The local id that the client got; nil if it got none.
    package var localID: String?
    /// Whether the write has failed for good.
    package var isLost: Bool

    package init(token: RequestToken, localID: String?, isLost: Bool) {
        (self.token, self.localID, self.isLost) = (token, localID, isLost)
    }
}

/// A write to the backend that the queue sends until it is done.
package struct QueuedWrite: Sendable {
    /// A text to seal. The envelope takes its place in the message, which becomes the body.
    package struct Text: Sendable {
        package var plaintext: [UInt8]
        package var message: OutgoingMessage
        package var conversation: AccountID

        package init(_ plaintext: [UInt8], in message: OutgoingMessage, of conversation: AccountID) {
            (self.plaintext, self.message, self.conversation) = (plaintext, message, conversation)
        }
    }

    /// The author.
    package var account: AccountID
    /// The client's credential, with which the write is sent. In memory only.
    ///
    /// If this process no longer has it, or the backend rejects it, the account's most recent credential is used.
    package var credential: Credential
    /// All cookies of the client, some of which may be credentials too. In memory only.
    package var cookies: [String] = []
    /// The conversation. Writes in the same lane keep their order.
    package var lane: String
    /// The same as an account.
    package var conversation: AccountID { .room(lane) }
    /// The key that distinguishes a repeated write from a new one; nil if its message has no client id.
    package var key: WriteKey?
    package var head: RequestHead
    package var body: ByteBuffer
    /// The text to seal when the write is queued; nil if the body is sent as it is.
    package var text: Text?
    /// Whether the client is answered before the backend, with a local id of the created message.
    package var answersAtOnce: Bool
    /// The client's own name of the created message, see ``WaitingWrites``; nil if the write creates none.
    package var ownName: String?
    /// The place of the created message's backend id in the answer.
    package var remoteID: RemoteIDSource?
    /// Positions of such ids of other messages. The queue replaces them by backend ids when it sends the write.
    package var references: [QueuedReference]
    /// The ticket of the WebSocket message that it is; nil if it is a request over HTTP.
    package var frame: UInt64?

    package init(
        account: AccountID, credential: Credential, lane: String, key: WriteKey?, head: RequestHead,
        body: ByteBuffer, text: Text? = nil, answersAtOnce: Bool = false, ownName: String? = nil,
        remoteID: RemoteIDSource? = nil, references: [QueuedReference] = []
    ) {
        self.account = account
        self.credential = credential
        self.lane = lane
        self.key = key
        self.head = head
        self.body = body
        self.text = text
        self.answersAtOnce = answersAtOnce
        self.ownName = ownName
        self.remoteID = remoteID
        self.references = references
    }

    /// The references of the created message until the backend assigns an id.
    ///
    /// - Parameters:
    ///   - localID: the id that the client gets; nil if it gets none.
    ///   - token: a text unique to this write.
    package func creates(_ localID: String?, token: String) -> [String] {
        [localID, ownName.map { WaitingWrites.reference($0, token: token) }].compactMap(\.self)
    }
}

/// A reference in a write to a message without a backend id.
package struct QueuedReference: Sendable, Equatable {
    package enum Place: Sendable, Equatable {
        /// A segment of the path, counted from zero.
        case segment(Int)
        /// A string in the JSON body.
        case body(JSONPath)
    }

    package var place: Place
    /// One of ``QueuedWrite/creates(_:token:)`` of an earlier write.
    package var local: String

    package init(_ place: Place, local: String) { (self.place, self.local) = (place, local) }
}

/// The reason why the queue refuses a write.
package enum WriteRefusal: Error, Sendable, Equatable {
    /// Too many writes wait, of this account or in total.
    case full
    /// The write refers to a message that the queue does not know.
    case unknownReference
    /// The write could not be stored.
    case unavailable
}

/// The outcome of a write.
package enum WriteOutcome: Sendable, Equatable {
    /// The backend has answered, with any status.
    ///
    /// - Parameter sealed: the message that this process has sealed for the write; nil if it has not.
    case answered(ResponseHead, ByteBuffer, sealed: MessageID? = nil)
    /// The write was cancelled, or dropped by an operator.
    case dropped
    /// The write stays queued, but the queue stops waiting for its end.
    case waits
    /// The write has failed for good, with the reason in words.
    case failed(String)
}
