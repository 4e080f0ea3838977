// A text that a client sends to a JSON backend: found, turned into what is sealed, and replaced by its envelope.

package import JSONCodec
package import NIOCore

/// The one message of a request or of a WebSocket message.
package struct OutgoingMessage: Sendable {
    package let document: JSONDocument
    package let found: FoundMessage

    package var conversation: String { found.conversation }
    /// What the client calls it, where it says so in the message.
    package var localID: String? { found.localID }
    /// Whom it is for, where the message says so.
    package var recipients: [String] { found.recipients ?? [] }

    /// Finds it.
    ///
    /// - Parameters:
    ///   - target: what the request's target says.
    /// - Throws: ``MessageFault`` where there is not one message that can be read, and nothing else that somebody says.
    init(
        _ document: JSONDocument, _ shapes: [MessageShape], target: TargetValues = TargetValues()
    ) throws(MessageFault) {
        let reading = MessageReading(document, shapes, target: target, isRequest: true)
        if let fault = reading.faults.first { throw fault }
        guard let found = reading.messages.first else { throw .noMessage }
        guard reading.messages.count == 1 else { throw .tooManyMessages }
        self.document = document
        self.found = found
    }

    /// What is sealed of it.
    package func plaintext() throws(MessageFault) -> [UInt8] { try SealedContent(document, found).bytes }

    /// The document with the envelope in it.
    package func sealed(_ envelope: [UInt8]) throws(MessageFault) -> ByteBuffer {
        var edits = MessageEdits(document)
        try edits.seal(found, envelope: envelope)
        return try edits.apply()
    }

    /// An id that stands in the message.
    package func identifier(_ path: JSONPath) -> String? {
        guard let place = try? document.one(path, from: found.place) else { return nil }
        return try? document.identifier(place, path.text)
    }
}
