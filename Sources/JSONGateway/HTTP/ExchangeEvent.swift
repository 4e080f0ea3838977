// What an exchange hears and what it wants done. An exchange is one request of a client and its answer.

package import Envelope
package import HTTPCodec
package import JSONCodec
package import NIOCore
package import Protection
package import Vault

/// What happens to an exchange.
package enum ExchangeEvent: Sendable {
    /// The head of the client's request. Always the first event.
    case request(RequestHead)
    /// The whole body of the request, after ``ExchangeAction/collectRequest(limit:)``.
    case requestBody(ByteBuffer)
    /// The request has a longer body than was asked for. The rest of it is not read.
    case requestTooLong
    /// The head of the backend's answer. Only where the request was not passed by ``ExchangeAction/pass(_:)``.
    case response(ResponseHead)
    /// The whole body of the answer, after ``ExchangeAction/collectResponse(limit:)``.
    case responseBody(ByteBuffer)
    case responseTooLong
    /// The backend cannot be reached, or has broken off before the end of its answer's head.
    case upstreamFailed
    /// The backend's answer to a request of the gateway's own.
    case found(Lookup.ID, ResponseHead, ByteBuffer)
    /// There is no answer to it.
    case notFound(Lookup.ID)
    /// An answer of the vault.
    case vault(VaultReply)
    /// Whether a write came before under this key, after ``ExchangeAction/recall(_:_:by:)``.
    case recalled(WriteRecall)
    /// A write is in the queue and committed, or is not.
    case enqueued(Result<RecalledWrite, WriteRefusal>)
    /// How a write ended, after ``ExchangeAction/await(_:)``.
    case written(WriteOutcome)
    /// The time of the last ``ExchangeAction/wake(at:)`` has come.
    case woken
}

/// What an exchange wants done, in order.
package enum ExchangeAction: Sendable {
    /// Request and answer go through as they come, the request with this head. Nothing more is heard of either, except
    /// ``ExchangeEvent/upstreamFailed``.
    case pass(RequestHead)
    /// The request goes through as it comes, with this head; its answer is heard of.
    case passRequest(RequestHead)
    /// The whole body of the request is wanted, of at most so many bytes.
    case collectRequest(limit: Int)
    /// This goes to the backend instead of the request; its answer is heard of.
    case send(RequestHead, ByteBuffer)
    /// The answer goes through as it comes, with this head.
    case passResponse(ResponseHead)
    /// The whole body of the answer is wanted, of at most so many bytes.
    case collectResponse(limit: Int)
    /// This is the answer. `Content-Length` is set by whoever writes it.
    case respond(ResponseHead, ByteBuffer)
    /// The answer is 101 with this head, and from now on both sides speak WebSocket. Without a session bytes are bytes.
    case upgrade(ResponseHead, WebSocketSession?)
    /// A request of the gateway's own, with the client's credential.
    case look(Lookup)
    case submit(VaultJob)
    /// The backend has let this account in with this credential: what waits for one can be sent.
    case loggedIn(AccountID, Credential)
    /// Whether this account has said a write under this key before.
    case recall(AccountID, WriteKey, by: Credential)
    /// A write for the queue.
    case enqueue(QueuedWrite)
    /// How this write ends is to be heard of.
    case await(WriteToken)
    /// Monotonic nanoseconds.
    case wake(at: Int64)
}

/// A request of the gateway's own.
package struct Lookup: Sendable, Equatable {
    package enum ID: Hashable, Sendable {
        case account
        case members
    }

    package var id: ID
    package var head: RequestHead
    /// Bytes of the answer's body that are read.
    package var limit: Int

    package init(_ id: ID, _ head: RequestHead, limit: Int = 1 << 20) {
        (self.id, self.head, self.limit) = (id, head, limit)
    }
}

/// The name of a write in the queue.
package struct WriteToken: Hashable, Sendable {
    package var high: UInt64
    package var low: UInt64

    package init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
}

/// A write that the queue has, of this request or of an equal one before it.
package struct RecalledWrite: Sendable, Equatable {
    package var token: WriteToken
    /// What its client was told that it is called, where it was told.
    package var localID: String?
    /// Whether it will never be done.
    package var isLost: Bool

    package init(token: WriteToken, localID: String?, isLost: Bool) {
        (self.token, self.localID, self.isLost) = (token, localID, isLost)
    }
}

/// What the queue knows of a write that a client names.
package enum WriteRecall: Sendable, Equatable {
    case known(RecalledWrite)
    /// Nothing. What is new is kept under this key.
    case new(WriteKey)
}

/// A write to the backend, to be sent until it is done.
package struct QueuedWrite: Sendable, Equatable {
    /// Whose it is.
    package var account: AccountID
    /// As the client showed it, and what it is sent with; where this process knows it no more, or the backend refuses it, with
    /// the one that the account showed last. In memory only.
    package var credential: Credential
    /// All cookies that the client showed, some of which may let it in as well. In memory only.
    package var cookies: [String] = []
    /// Writes with the same lane keep their order: the conversation.
    package var lane: String
    /// As the queue has found it to be new. None where its client has no name for it.
    package var key: WriteKey?
    package var head: RequestHead
    package var body: ByteBuffer
    /// What its client was told that the message is called which it makes; nothing where it was told nothing.
    package var localID: String?
    /// What its client calls that message, see ``WaitingWrites``; nothing where it makes none.
    package var ownName: String?
    /// Where the backend's id of that message stands in its answer.
    package var remoteID: JSONPath?
    /// Where it names messages by such ids: replaced by the backend's when it is sent.
    package var references: [QueuedReference]
    /// The message that is sealed in it, for its trace; not stored.
    package var message: MessageID?

    package init(
        account: AccountID, credential: Credential, lane: String, key: WriteKey?, head: RequestHead,
        body: ByteBuffer, localID: String? = nil, ownName: String? = nil, remoteID: JSONPath? = nil,
        references: [QueuedReference] = [], message: MessageID? = nil
    ) {
        self.account = account
        self.credential = credential
        self.lane = lane
        self.key = key
        self.head = head
        self.body = body
        self.localID = localID
        self.ownName = ownName
        self.remoteID = remoteID
        self.references = references
        self.message = message
    }

    /// What the queue calls the message that it makes before the backend has named it.
    ///
    /// - Parameter mark: anything that no other write has.
    package func creates(marked mark: String) -> [String] {
        [localID, ownName.map { WaitingWrites.reference($0, mark: mark) }].compactMap(\.self)
    }
}

/// A message that the backend has not named yet, named in a write.
package struct QueuedReference: Sendable, Equatable {
    package enum Place: Sendable, Equatable {
        /// A segment of the path, counted from nought.
        case segment(Int)
        /// A string in the JSON body.
        case body(JSONPath)
    }

    package var place: Place
    /// One of those in ``QueuedWrite/creates(marked:)`` of an earlier write.
    package var local: String

    package init(_ place: Place, local: String) { (self.place, self.local) = (place, local) }
}

/// Why a write is not taken.
package enum WriteRefusal: Error, Sendable, Equatable {
    /// Too many wait, of this account or of all.
    case full
    /// It names a message that the queue does not know.
    case unknownReference
    /// It could not be stored.
    case unavailable
}

/// How a write ended.
package enum WriteOutcome: Sendable, Equatable {
    /// The backend's answer, whatever its status.
    case answered(ResponseHead, ByteBuffer)
    /// It was cancelled, or dropped by an operator.
    case dropped
    /// It is kept, and its end is not waited for any more.
    case waits
    /// It will not be sent any more, with the reason in words.
    case failed(String)
}
