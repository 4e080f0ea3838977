// Refusals of requests, in a form that clients of the backend understand.

package import HTTPCodec
import JSONCodec
package import NIOCore
package import Protection
package import Reports
import Vault

/// The reason why the gateway answers instead of the backend.
package enum ExchangeRefusal: Error, Sendable, Equatable {
    /// Refused by the policy.
    case refused(Refusal)
    /// The request carries content of a kind that is refused here.
    case kind(ContentKind)
    /// The request fits no route of the mapping, and the policy demands protection.
    case noRoute
    /// The request's body is too long to be sealed.
    case tooLong
    /// Sealed, the message would be longer than the backend accepts. With the longest text, in bytes of UTF-8.
    case longerThan(Int)
    /// The envelope is not of a device of the account.
    case otherDevice
    /// The message in the request cannot be read.
    case unreadable(MessageFault)
    case notLoggedIn
    /// The backend rejects the credential.
    case loginRejected
    case backendUnreachable
    /// The vault could not store the message.
    case notStored
    case notQueued(WriteRefusal)
    /// The write is stored, and the backend has not answered yet.
    case stillWaiting
    /// An operator has dropped the write.
    case dropped
    /// The queue has given up, with the reason in words.
    case failed(String)
    case answerTooLong
    case answerUnreadable
    /// The key of a file has expired.
    case fileForgotten
    /// A sealed file was altered, or sealed by another gateway or a newer version.
    case fileUnreadable
    /// The gateway collects too much for its clients at present.
    case noRoom
    /// A defect of the gateway: an event came that its state cannot have.
    case unexpected

    init(_ failure: SealFailure, of message: OutgoingMessage?) {
        self =
            switch failure {
            case .tooLong: message?.longestText.map(ExchangeRefusal.longerThan) ?? .tooLong
            case .keysMissing, .store: .notStored
            }
    }

    /// In the words for people that a WebSocket and a call of the gateway use too.
    package static let noRoomWords =
        "The gateway is busy with too many long messages at present. Try again in a few seconds."

    /// One refusal of each code.
    static let all: [ExchangeRefusal] =
        Refusal.allCases.map { .refused($0) } + [
            .kind(.custom), .noRoute, .tooLong, .otherDevice, .unreadable(.noMessage), .notLoggedIn, .loginRejected,
            .backendUnreachable,
            .notStored, .notQueued(.full), .notQueued(.unknownReference), .notQueued(.unavailable), .stillWaiting,
            .dropped, .failed(""), .answerTooLong, .answerUnreadable,
            .fileForgotten, .fileUnreadable, .noRoom, .unexpected,
        ]

    /// The HTTP status; nil if the mapping's ``RefusalForm`` decides. RFC 9110 section 15.
    package var status: Int? {
        switch self {
        case .refused, .kind, .noRoute: nil
        case .tooLong, .longerThan: 413
        case .unreadable: 400
        case .otherDevice: 409
        case .notLoggedIn, .loginRejected: 401
        case .backendUnreachable, .failed, .answerTooLong, .answerUnreadable, .fileUnreadable: 502
        case .notStored, .notQueued(.unavailable), .noRoom: 503
        case .notQueued(.full): 429
        case .notQueued(.unknownReference): 404
        case .stillWaiting: 504
        case .dropped, .fileForgotten: 410
        case .unexpected: 500
        }
    }

    /// A stable code for programs.
    package var code: String {
        switch self {
        case .refused(let refusal): "pawl_" + refusal.name
        case .kind: "pawl_kind"
        case .noRoute: "pawl_no_route"
        case .tooLong, .longerThan: "pawl_too_long"
        case .unreadable: "pawl_unreadable"
        case .otherDevice: "pawl_other_device"
        case .notLoggedIn: "pawl_not_logged_in"
        case .loginRejected: "pawl_login_rejected"
        case .backendUnreachable: "pawl_backend_gone"
        case .notStored: "pawl_not_stored"
        case .notQueued(.full): "pawl_queue_full"
        case .notQueued(.unknownReference): "pawl_unknown_message"
        case .notQueued(.unavailable): "pawl_queue_unavailable"
        case .stillWaiting: "pawl_still_waiting"
        case .dropped: "pawl_dropped"
        case .failed: "pawl_failed"
        case .answerTooLong: "pawl_answer_too_long"
        case .answerUnreadable: "pawl_answer_unreadable"
        case .fileForgotten: "pawl_file_forgotten"
        case .fileUnreadable: "pawl_file_unreadable"
        case .noRoom: "pawl_no_room"
        case .unexpected: "pawl_defect"
        }
    }

    /// The refusal in words, for people.
    ///
    /// - Parameters:
    ///   - recipient: who it is about; nil if unknown.
    package func words(_ recipient: NamedRecipient?, _ texts: NoticeTexts) -> String {
        let target = recipient?.name ?? Notices.thisConversation
        return switch self {
        case .refused(let refusal):
            Notices.refusal(refusal, target: target, people: recipient?.withoutDevice, texts: texts)
        case .kind(let kind):
            "Not sent: \(kind.words) cannot be protected here, because the chat server would have to read them. Write a "
                + "message instead, or ask your operator."
        case .noRoute: Notices.refusal(.verb, target: target, texts: texts)
        case .tooLong: "Not sent: the message is too long to be protected."
        case .longerThan(let length):
            "Not sent: encrypted, the message would be longer than the chat server accepts. It may have "
                + "\(length) characters, or fewer if they are not plain Latin letters. Send it in several parts."
        case .otherDevice: Notices.notOwnDevice
        case .unreadable(let error): "Not sent: the gateway cannot read the message: \(error)."
        case .notLoggedIn: "Not sent: the gateway does not know who you are. Log in first."
        case .loginRejected: "Not sent: the chat server rejects this login. Log in again."
        case .backendUnreachable: "The chat server does not answer. Try again in a moment."
        case .notStored: Notices.notCommitted(target: target)
        case .notQueued(.full): Notices.tooManyPending
        case .notQueued(.unknownReference): "Not sent: the message it refers to is unknown."
        case .notQueued(.unavailable): Notices.notCommitted(target: target)
        case .stillWaiting:
            "Your message is stored and waits for the chat server. Sent again with the same id it is not duplicated."
        case .dropped: Notices.dropped(target: target)
        case .failed(let reason): "Not sent: \(reason)"
        case .answerTooLong:
            "The chat server's answer is too long to be opened. Ask for less at a time, or ask your operator to allow longer "
                + "ones (limits.answer_bytes)."
        case .answerUnreadable: "The gateway cannot read the chat server's answer, so it is not shown."
        case .fileForgotten:
            "This file is encrypted, and its key has expired: it is older than your operator keeps keys (history.retention)."
        case .fileUnreadable:
            "This file is encrypted, and the gateway cannot open it: it was altered, or encrypted by another gateway. Ask "
                + "the sender to send it again."
        case .noRoom: Self.noRoomWords
        case .unexpected: "The gateway has made a mistake with this request. Try again, and tell your operator."
        }
    }
}

/// The recipients of a message by the names that people know. People do not know the ids of conversations.
package struct NamedRecipient: Sendable, Equatable {
    /// The other member of a conversation of two; nil if there are more.
    package var name: String?
    /// Members without a device of their own, with `you` for the sender; empty if the refusal does not depend on it.
    package var withoutDevice: [String]

    package init(name: String? = nil, withoutDevice: [String] = []) {
        (self.name, self.withoutDevice) = (name, withoutDevice)
    }
}

extension Tally {
    /// Counts a refusal. The others are counted where their cause is found.
    func add(_ no: ExchangeRefusal) {
        switch no {
        case .refused(let refusal): add(TallyKind(refusal))
        case .kind, .noRoute: add(TallyKind(.verb))
        case .notStored, .notQueued, .failed: add(.failed)
        case .tooLong, .longerThan, .otherDevice, .unreadable, .notLoggedIn, .loginRejected, .backendUnreachable,
            .stillWaiting, .dropped, .answerTooLong, .answerUnreadable, .fileForgotten, .fileUnreadable, .noRoom,
            .unexpected:
            break
        }
    }
}

extension RefusalForm {
    /// Returns the HTTP answer to a client.
    package func answer(to no: ExchangeRefusal, words: String) -> (ResponseHead, ByteBuffer) {
        answer(no.code, status: no.status ?? status, words: words)
    }

    /// Returns the HTTP answer for a code.
    ///
    /// - Parameter usual: the status if the mapping sets none for this code.
    func answer(
        _ code: String, status usual: Int, reason: String = "", words: String
    ) -> (ResponseHead, ByteBuffer) {
        let special = codes[code]
        let status = status(of: code, usual)
        var head = ResponseHead(status, reason: status == usual ? reason : "", headers: ["Content-Type": contentType])
        if status == 503 || status == 429 { head.headers.add("Retry-After", "5") }
        head.headers.fields += headers.fields
        let values = ["code": code, "reason": words, "status": "\(status)"]
        return (head, ByteBuffer(string: Self.filled(special?.body ?? body, values)))
    }

    /// The status for a code.
    ///
    /// - Parameter usual: the status if the mapping sets none for this code.
    private func status(of code: String, _ usual: Int) -> Int { codes[code]?.status ?? usual }

    /// The codes for which a mapping can set another form.
    package static let allCodes: [String] = ExchangeRefusal.all.map(\.code) + GatewayFault.all.map(\.code)

    /// Returns the WebSocket message to a client.
    package func frame(_ no: ExchangeRefusal, words: String, localID: String?) -> String {
        let status = status(of: no.code, no.status ?? status)
        return Self.filled(
            frame ?? body,
            ["code": no.code, "reason": words, "local_id": localID ?? "", "status": "\(status)"])
    }

    /// Replaces names in braces in a text of the mapping by values, escaped for a JSON string.
    package static func filled(_ text: String, _ values: [String: String]) -> String {
        var filled = ""
        var rest = Substring(text)
        while let open = rest.firstIndex(of: "{") {
            filled += rest[..<open]
            let inner = rest[rest.index(after: open)...]
            if let close = inner.firstIndex(of: "}"), let value = values[String(inner[..<close])] {
                filled += String(decoding: JSONFragment.string(value).bytes.dropFirst().dropLast(), as: UTF8.self)
                rest = inner[inner.index(after: close)...]
            } else {
                filled.append("{")
                rest = inner
            }
        }
        return filled + rest
    }
}
