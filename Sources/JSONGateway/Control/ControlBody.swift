// The body of a call: an object whose members are read by name.

import Envelope
import JSONCodec
import NIOCore
import Protection

/// A call's body.
struct ControlBody {
    private let document: JSONDocument
    private let place: JSONPlace

    /// - Throws: ``ControlAnswer/Fault/malformed`` if the body is not an object, or has duplicate names.
    init(_ body: ByteBuffer) throws(ControlAnswer.Fault) {
        guard let document = try? JSONDocument(body), document.kind(document.root) == .object,
            !document.hasDuplicateNames
        else { throw .malformed }
        self.document = document
        place = document.root
    }

    private init(_ document: JSONDocument, _ place: JSONPlace) { (self.document, self.place) = (document, place) }

    private func member(_ name: String) -> JSONPlace? { document.member(name, of: place) }

    /// Decodes a member in Base64, with or without padding.
    package func bytes(_ name: String) throws(ControlAnswer.Fault) -> [UInt8] {
        guard let place = member(name), let text = try? document.utf8(place),
            let bytes = Base64.decode(text.trimmedPadding)
        else { throw .malformed }
        return bytes
    }

    /// Decodes an optional member in Base64; empty if it is missing.
    func bytesIfAny(_ name: String) throws(ControlAnswer.Fault) -> [UInt8] {
        member(name) == nil ? [] : try bytes(name)
    }

    package func text(_ name: String, limit: Int) throws(ControlAnswer.Fault) -> String {
        guard let place = member(name), let text = try? document.text(place), !text.isEmpty, text.utf8.count <= limit
        else { throw .malformed }
        return text
    }

    /// The bytes of a member; nil if it is missing.
    func fragment(_ name: String) -> JSONFragment? { member(name).map { JSONFragment(document, $0) } }

    package func account(_ name: String) throws(ControlAnswer.Fault) -> AccountID {
        guard let account = ControlRoute.account(try text(name, limit: FoundMessage.nameLimit)) else {
            throw .malformed
        }
        return account
    }

    package func device(_ name: String) throws(ControlAnswer.Fault) -> DeviceID {
        guard let device = DeviceID(name: try text(name, limit: 16)) else { throw .malformed }
        return device
    }

    package func number(_ name: String) throws(ControlAnswer.Fault) -> UInt64 {
        guard let place = member(name), let number = document.integer(place), number >= 0 else { throw .malformed }
        return UInt64(number)
    }

    package func objects(_ name: String, limit: Int) throws(ControlAnswer.Fault) -> [ControlBody] {
        guard let place = member(name), document.kind(place) == .array, (1...limit).contains(document.count(place))
        else {
            throw .malformed
        }
        return document.children(place).map { ControlBody(document, $0) }
    }
}

extension [UInt8] {
    fileprivate var trimmedPadding: ArraySlice<UInt8> {
        var text = self[...]
        while text.count > count - 2, text.last == UInt8(ascii: "=") { text.removeLast() }
        return text
    }
}
