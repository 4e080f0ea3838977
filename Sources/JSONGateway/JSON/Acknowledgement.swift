// The backend's answer to a message that a client sends over a WebSocket.

package import JSONCodec

/// How a mapping finds the answer to a WebSocket message.
package struct Acknowledgement: Sendable, Equatable {
    /// A kind of answer: a condition, and the place of the reference in it.
    package struct Answer: Sendable, Equatable {
        package var when: JSONPath
        package var reference: JSONPath

        package init(when: JSONPath, reference: JSONPath) { (self.when, self.reference) = (when, reference) }
    }

    /// How the backend has answered.
    package enum Verdict: Sendable, Equatable {
        case accepted
        case rejected
        /// The backend may accept the message later, for instance when a limit of its rate allows it.
        case postponed
    }

    /// The place of the reference in the client's message: an id that no other message has, on any connection.
    package var reference: JSONPath
    package var accepted: [Answer]
    package var rejected: [Answer]
    /// Answers after which the message is sent again later.
    package var postponed: [Answer] = []
    /// The place of the message's backend id in an answer that accepts it; nil if it has none.
    package var messageID: JSONPath?

    package init(reference: JSONPath, accepted: [Answer], rejected: [Answer] = [], messageID: JSONPath? = nil) {
        (self.reference, self.accepted, self.rejected) = (reference, accepted, rejected)
        self.messageID = messageID
    }

    /// The reference in a client's message; nil if it has none that can be used.
    package func reference(in document: JSONDocument) -> String? { Self.identifier(reference, in: document) }

    /// What a message of the backend answers, and the references that it names; nil if it is no answer.
    package func answer(in document: JSONDocument) -> (verdict: Verdict, references: [String])? {
        func references(_ answers: [Answer]) -> [String] {
            answers.compactMap { answer in
                guard let found = try? document.places(answer.when), !found.isEmpty else { return nil }
                return Self.identifier(answer.reference, in: document)
            }
        }
        // A rejection for now is usually one of a special kind, and a message that is a rejection too is no success.
        let later = references(postponed)
        if !later.isEmpty { return (.postponed, later) }
        let refused = references(rejected)
        if !refused.isEmpty { return (.rejected, refused) }
        let taken = references(accepted)
        return taken.isEmpty ? nil : (.accepted, taken)
    }

    private static func identifier(_ path: JSONPath, in document: JSONDocument) -> String? {
        guard let place = try? document.one(path) else { return nil }
        return try? document.identifier(place, path.text)
    }
}
