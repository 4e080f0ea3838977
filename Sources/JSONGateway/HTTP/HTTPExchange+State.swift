// What an exchange waits for, and what it knows by then.

import Envelope
import HTTPCodec
import JSONCodec
import NIOCore
import Protection

extension HTTPExchange {
    /// The state of an exchange: the event that it waits for, with the data for it.
    enum State: Sendable {
        case beginning
        /// The backend is asked whose credential this is.
        case identifying(Subject, Credential)
        case collectingCall(Call)
        /// The participants execute a call with this head.
        case calling(ControlCall, RequestHead)
        /// A call for messages waits until there are some, or until its time is over.
        case waitingForMail(ControlCall, RequestHead)
        /// A call for a relay waits until the other device is there, or until its time is over.
        case waitingForRelay(RelayCall, RequestHead)
        /// The backend is asked for the conversation of the message that the request names, in its target or as the one
        /// that it edits, or for the conversation that it names itself. Nil if its body has not been read.
        case findingConversation(WriteRequest, Placed?)
        case collecting(WriteRequest)
        /// The queue is asked for an earlier write with this key.
        case findingWrite(Write, WriteKey)
        /// The backend is asked for the members of the conversation. The key is nil if the queue was not asked for it.
        case askingMembers(WriteRequest, Content, WriteKey?, MemberPages)
        /// The write is answered as soon as it is stored.
        case queueing(PendingWrite)
        /// The write is answered with its outcome, and refused if it cannot be stored.
        case awaitingOutcome(PendingWrite)
        case forwarding(Forwarded)
        case collectingAnswer(ReadAnswer)
        /// The vault opens envelopes in this body.
        case opening(ReadAnswer, ByteBuffer, IncomingMessages)
        /// The vault makes the key of a file to send.
        case sealingFile(FileUpload)
        /// The files of a form are sealed as they pass, and its texts come at its end.
        case sendingForm(FormWrite)
        /// The vault seals the texts of a form. An answer that comes before its end waits.
        case sealingTexts(FormWrite, OutgoingMessage, ticket: UInt64, answer: ResponseHead?)
        case askingForFile(FileDownload)
        /// The beginning of a file tells whether it is sealed.
        case beginningFile(FileDownload, ResponseHead)
        /// The vault looks for the key of the file that begins with these bytes.
        case openingFile(FileDownload, ResponseHead, ByteBuffer)
        /// The adapter forwards everything, and answers faults.
        case passed
        case over
    }

    /// A state without its data, for tests and the log.
    package enum Stage: Sendable, CaseIterable {
        case beginning, identifying, collectingCall, calling, waitingForMail, waitingForRelay, findingConversation,
            collecting, findingWrite, askingMembers, queueing, awaitingOutcome, forwarding, collectingAnswer, opening,
            sealingFile, sendingForm, sealingTexts, askingForFile, beginningFile, openingFile, passed, over

        /// Whether the client has its answer, or gets it from the backend without the exchange.
        package var isAnswered: Bool { self == .passed || self == .over }
    }

    /// The account of a request, and the credential that proves it.
    struct Client: Sendable {
        let account: AccountID
        let credential: Credential
    }

    /// A request for the backend.
    struct Request: Sendable {
        var head: RequestHead
        /// Nil if no route matches, or the exchange takes no part in it.
        let match: RouteMatch?
        /// Whether it asks for a WebSocket.
        let isUpgrade: Bool

        init(_ head: RequestHead, _ match: RouteMatch? = nil) {
            (self.head, self.match, isUpgrade) = (head, match, head.isWebSocketUpgrade)
        }

        var label: Mapping.Label? { match?.route.label }

        /// Whether the client announces that it can encrypt. This is not verified.
        var asksForEncryption: Bool {
            isUpgrade && head.headers.tokens("Sec-WebSocket-Protocol").contains(HTTPExchange.subprotocol)
        }
    }

    /// What a credential was sent with.
    enum Subject: Sendable {
        case request(Request)
        /// A request for the gateway itself.
        case call(RequestHead)

        var head: RequestHead {
            switch self {
            case .request(let request): request.head
            case .call(let head): head
            }
        }
    }

    /// A call whose account is known.
    struct Call: Sendable {
        let head: RequestHead
        let client: Client
    }

    /// A request that changes something, and that may be queued.
    struct WriteRequest: Sendable {
        let request: Request
        var match: RouteMatch
        let client: Client
        /// Whether only the backend's present answer names the conversation.
        var isPlacedByBackend = false

        init(_ request: Request, _ match: RouteMatch, _ client: Client) {
            (self.request, self.match, self.client) = (request, match, client)
        }

        var head: RequestHead { request.head }
        var account: AccountID { client.account }
    }

    /// What is known of a text before it is judged.
    enum Content: Sendable {
        /// The body has not been collected.
        case unread
        /// It comes in a form with files.
        case withFiles
        /// The body was collected, and cannot be read.
        case unreadable(ExchangeRefusal)
        case message(Message)

        /// The message; nil if none was read.
        var message: Message? { if case .message(let message) = self { message } else { nil } }
    }

    /// The message in a body.
    struct Message: Sendable {
        let outgoing: OutgoingMessage
        let body: ByteBuffer
        /// Whether it is an envelope of the account's own device.
        let isOwnEnvelope: Bool
        /// The content to seal; nil if it was not needed before.
        var plaintext: [UInt8]?
    }

    /// A message that was read, and whose conversation is checked. The key is nil if the queue was not asked for it.
    struct Placed: Sendable {
        let message: Message
        let key: WriteKey?
    }

    /// A collected request that may be queued.
    struct Write: Sendable {
        enum Body: Sendable {
            /// The body of a control request, which has no text.
            case control(ByteBuffer)
            case message(Message)
        }

        let request: WriteRequest
        let body: Body
    }

    /// A write that was handed to the queue: what its answer depends on.
    struct PendingWrite: Sendable {
        let request: WriteRequest
        let conversation: String
        /// The client's id of the message; nil if it has none.
        let clientID: String?
        /// Nil if the members are unknown.
        let recipient: NamedRecipient?

        var head: RequestHead { request.head }
    }

    /// A forwarded request whose answer is reported.
    struct Forwarded: Sendable {
        let request: Request
        /// Nil if the request has none.
        let credential: Credential?
        /// The client for whom the messages in the answer are read; nil if they are not.
        var reader: Client?
        /// A WebSocket whose account a message will name.
        var awaitedLogin: AwaitedLogin?
        /// The message that was sealed for it; nil if none was.
        var sealed: (conversation: AccountID, message: MessageID)?
    }

    /// What the upgrade of a WebSocket without a login says about its client.
    struct AwaitedLogin: Sendable {
        let software: String?
        let asksForEncryption: Bool
    }

    /// An answer of the backend whose messages are read.
    struct ReadAnswer: Sendable {
        /// The head of the request.
        let request: RequestHead
        let match: RouteMatch
        let client: Client
        let head: ResponseHead
    }
}

extension HTTPExchange.State {
    var stage: HTTPExchange.Stage {
        switch self {
        case .beginning: .beginning
        case .identifying: .identifying
        case .collectingCall: .collectingCall
        case .calling: .calling
        case .waitingForMail: .waitingForMail
        case .waitingForRelay: .waitingForRelay
        case .findingConversation: .findingConversation
        case .collecting: .collecting
        case .findingWrite: .findingWrite
        case .askingMembers: .askingMembers
        case .queueing: .queueing
        case .awaitingOutcome: .awaitingOutcome
        case .forwarding: .forwarding
        case .collectingAnswer: .collectingAnswer
        case .opening: .opening
        case .sealingFile: .sealingFile
        case .sendingForm: .sendingForm
        case .sealingTexts: .sealingTexts
        case .askingForFile: .askingForFile
        case .beginningFile: .beginningFile
        case .openingFile: .openingFile
        case .passed: .passed
        case .over: .over
        }
    }

    /// The account for which a body or the answer to a lookup is collected; nil if it is unknown, or nothing is.
    var payer: AccountID? {
        switch self {
        case .collectingCall(let call): call.client.account
        case .findingConversation(let request, _), .collecting(let request), .askingMembers(let request, _, _, _):
            request.account
        case .collectingAnswer(let answer): answer.client.account
        case .beginning, .identifying, .calling, .waitingForMail, .waitingForRelay, .findingWrite, .queueing,
            .awaitingOutcome, .forwarding, .opening, .sealingFile, .sendingForm, .sealingTexts, .askingForFile,
            .beginningFile, .openingFile, .passed, .over:
            nil
        }
    }

    /// The head of the client's request; nil if it has not come, or is not needed any more.
    var request: RequestHead? {
        switch self {
        case .beginning, .passed, .over: nil
        case .identifying(let subject, _): subject.head
        case .collectingCall(let call): call.head
        case .calling(_, let head), .waitingForMail(_, let head), .waitingForRelay(_, let head): head
        case .findingConversation(let request, _), .collecting(let request), .askingMembers(let request, _, _, _):
            request.head
        case .findingWrite(let write, _): write.request.head
        case .queueing(let write), .awaitingOutcome(let write): write.head
        case .forwarding(let forwarded): forwarded.request.head
        case .collectingAnswer(let answer), .opening(let answer, _, _): answer.request
        case .sealingFile(let upload): upload.request.head
        case .sendingForm(let form), .sealingTexts(let form, _, _, _): form.request.head
        case .askingForFile(let file), .beginningFile(let file, _), .openingFile(let file, _, _): file.request.head
        }
    }
}
