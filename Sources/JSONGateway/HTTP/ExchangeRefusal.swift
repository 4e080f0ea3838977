// Why a request is not done, in a form that a client of the backend understands.

package import HTTPCodec
import JSONCodec
package import NIOCore
package import Protection
package import Reports
import Vault

/// Why the gateway answers in the backend's place.
package enum ExchangeRefusal: Sendable, Equatable {
    /// The policy says so.
    case refused(Refusal)
    /// The request's body is longer than can be sealed.
    case tooLong
    /// It is sealed by a device that is not the account's.
    case otherDevice
    /// Nobody can tell what stands in the request.
    case unreadable(MessageFault)
    case notLoggedIn
    case backendGone
    /// The vault's store did not take it.
    case notStored
    case notQueued(WriteRefusal)
    /// It is stored, and the backend has not answered yet.
    case stillWaiting
    /// An operator has dropped it.
    case dropped
    /// The queue has given it up, with the reason in words.
    case failed(String)
    case answerTooLong
    case answerUnreadable

    init(_ failure: WriteFailure) {
        self =
            switch failure {
            case .tooLong: .tooLong
            case .keysMissing, .store: .notStored
            }
    }

    /// RFC 9110 section 15; nothing where the mapping says what a refusal looks like.
    package var status: Int? {
        switch self {
        case .refused: nil
        case .tooLong: 413
        case .unreadable: 400
        case .otherDevice: 409
        case .notLoggedIn: 401
        case .backendGone, .failed, .answerTooLong, .answerUnreadable: 502
        case .notStored, .notQueued(.unavailable): 503
        case .notQueued(.full): 429
        case .notQueued(.unknownReference): 404
        case .stillWaiting: 504
        case .dropped: 410
        }
    }

    /// A stable word for programs.
    package var code: String {
        switch self {
        case .refused(let refusal): "pawl_" + refusal.name
        case .tooLong: "pawl_too_long"
        case .unreadable: "pawl_unreadable"
        case .otherDevice: "pawl_other_device"
        case .notLoggedIn: "pawl_not_logged_in"
        case .backendGone: "pawl_backend_gone"
        case .notStored: "pawl_not_stored"
        case .notQueued(.full): "pawl_queue_full"
        case .notQueued(.unknownReference): "pawl_unknown_message"
        case .notQueued(.unavailable): "pawl_queue_unavailable"
        case .stillWaiting: "pawl_still_waiting"
        case .dropped: "pawl_dropped"
        case .failed: "pawl_failed"
        case .answerTooLong: "pawl_answer_too_long"
        case .answerUnreadable: "pawl_answer_unreadable"
        }
    }

    /// For people.
    package func words(target: String, _ texts: RemarkTexts) -> String {
        switch self {
        case .refused(let refusal): Remarks.refusal(refusal, target: target, texts: texts)
        case .tooLong: "Not sent: the message is too long to be protected."
        case .otherDevice: Remarks.notOwnDevice
        case .unreadable(let error): "Not sent: the gateway cannot tell what the message says: \(error)."
        case .notLoggedIn: "Not sent: the gateway does not know who you are. Log in first."
        case .backendGone: "The chat server does not answer. Try again in a moment."
        case .notStored: Remarks.notCommitted(target: target)
        case .notQueued(.full): Remarks.tooManyPending
        case .notQueued(.unknownReference): "Not sent: the message that it is about is not known."
        case .notQueued(.unavailable): Remarks.notCommitted(target: target)
        case .stillWaiting:
            "Your message is kept and waits for the chat server. Sent again under the same id it is not sent twice."
        case .dropped: Remarks.dropped(target: target)
        case .failed(let reason): "Not sent: \(reason)"
        case .answerTooLong:
            "The chat server's answer is too long to be opened. Ask for less at a time, or ask your operator to allow longer "
                + "ones (limits.answer_bytes)."
        case .answerUnreadable: "The gateway cannot read what the chat server says, so it is not shown."
        }
    }
}

extension RefusalForm {
    /// The answer to a client.
    package func answer(to no: ExchangeRefusal, words: String) -> (ResponseHead, ByteBuffer) {
        var head = ResponseHead(no.status ?? status, headers: ["Content-Type": contentType])
        if no.status == 503 || no.status == 429 { head.headers.add("Retry-After", "5") }
        return (head, ByteBuffer(string: Self.filled(body, ["code": no.code, "reason": words])))
    }

    /// What a WebSocket client is told, in the backend's own form.
    package func frame(_ no: ExchangeRefusal, words: String, localID: String?) -> String {
        Self.filled(frame ?? body, ["code": no.code, "reason": words, "local_id": localID ?? ""])
    }

    /// A text of the mapping with values in the place of names in braces, escaped as inside a JSON string.
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
