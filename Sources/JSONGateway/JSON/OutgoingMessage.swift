// A message that a client sends to a JSON backend: finds it, extracts the content to seal, and inserts the envelope.

package import JSONCodec
package import NIOCore

/// The one message of a request or of a WebSocket message.
package struct OutgoingMessage: Sendable {
    package let document: JSONDocument
    package let found: FoundMessage
    /// The mentions that the gateway lists beside the envelope; nil if it adds none.
    package internal(set) var mentions: JSONFragment?

    package var conversation: String { found.conversation }
    /// The client's id of the message; nil if the message has none.
    package var localID: String? { found.localID }
    /// The recipients; empty if the message does not name them.
    package var recipients: [String] { found.recipients ?? [] }

    /// Finds the message.
    ///
    /// - Parameters:
    ///   - target: the values in the request's target.
    /// - Throws: ``MessageFault`` if the document does not hold exactly one message, or any part cannot be read.
    package init(
        _ document: JSONDocument, _ shapes: [MessageShape], target: TargetValues = TargetValues()
    ) throws(MessageFault) {
        let reading = MessageReading(document, shapes, target: target, isRequest: true)
        if let fault = reading.faults.first { throw fault }
        guard let found = reading.messages.first else { throw .noMessage }
        guard reading.messages.count == 1 else { throw .tooManyMessages }
        self.document = document
        self.found = found
    }

    /// The content to seal.
    package func plaintext() throws(MessageFault) -> [UInt8] { try SealedContent(document, found).bytes }

    /// Returns the document with the envelope in place of the sealed content.
    package func sealed(_ envelope: [UInt8]) throws(MessageFault) -> ByteBuffer {
        var edits = MessageEdits(document)
        try edits.seal(found, envelope: envelope, mentions: mentions)
        return try edits.apply()
    }

    /// The id at a path in the message; nil if there is none.
    package func identifier(_ path: JSONPath) -> String? {
        guard let place = try? document.one(path, from: found.place) else { return nil }
        return try? document.identifier(place, path.text)
    }
}
