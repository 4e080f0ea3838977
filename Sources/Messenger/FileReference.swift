// Files: how they are sealed in chunks, and what a message says about one. It knows no transport and no file system.

import Crypto
package import Envelope

/// Where a file is published, its key, and what it is. It is the text of a message, in Base64:
///
///     form 1 (1 B) | size (8 B) | digest (32 B) | key (32 B) | name (2 B length) | type (2 B length) | parts (2 B) |
///     each: id of the blob (1 B length)
///
/// The file is divided into chunks of 64 KiB, the last of which may be shorter, and each chunk is sealed with
/// ChaCha20-Poly1305 under the key, which is used for this file only. The nonce is `0 (7 B) | number of the chunk (4 B) |
/// whether it is the last (1 B)`. A part is a blob of 2 sealed chunks, the last part of the rest; an empty file has one
/// empty chunk. The digest is SHA-256 of all sealed chunks.
package struct FileReference: Hashable, Sendable {
    /// Ours: plaintext bytes of a chunk.
    package static let chunkSize = 64 * 1024
    /// Ours: chunks of a part. Twice in Base64, a part fits into the 256 KiB of a gateway's blobs.
    package static let chunksOfPart = 2
    /// Ours: parts of a file. Their ids have to fit into a message: with so many parts, of 54 bytes each.
    package static let partLimit = 800
    /// Plaintext bytes of a part.
    package static let partSize = chunkSize * chunksOfPart
    /// Bytes of a file: 100 MiB.
    package static let sizeLimit = UInt64(partSize * partLimit)
    /// Ours: bytes of the name, as file systems have it.
    package static let nameLimit = 255
    /// Ours: bytes of the type.
    package static let typeLimit = 127
    static let digestSize = 32
    static let keySize = 32
    static let tagSize = 16
    private static let form: UInt8 = 1

    package var size: UInt64
    package var digest: [UInt8]
    package var key: [UInt8]
    /// Without a path; see ``isName(_:)``.
    package var name: String
    /// A media type such as `image/png`.
    package var type: String
    /// The ids of the blobs, in their order.
    package var parts: [String]

    /// - Returns: nil if a limit does not hold.
    package init?(size: UInt64, digest: [UInt8], key: [UInt8], name: String, type: String, parts: [String]) {
        (self.size, self.digest, self.key) = (size, digest, key)
        (self.name, self.type, self.parts) = (name, type, parts)
        guard isValid else { return nil }
    }

    private var isValid: Bool {
        size <= Self.sizeLimit && digest.count == Self.digestSize && key.count == Self.keySize
            && Self.isName(name) && Self.isType(type) && parts.count == Self.partCount(of: size)
            && parts.allSatisfy { (1...GroupReference.blobLimit).contains($0.utf8.count) }
            && Base64.encodedLength(bytes.count) <= ChatContent.textLimit
    }

    /// Whether a text is the name of a file: no path, no control characters, neither `.` nor `..`.
    package static func isName(_ text: String) -> Bool {
        (1...nameLimit).contains(text.utf8.count) && text != "." && text != ".."
            && text.unicodeScalars.allSatisfy { $0 != "/" && $0 != "\\" && $0.properties.generalCategory != .control }
    }

    package static func isType(_ text: String) -> Bool {
        (1...typeLimit).contains(text.utf8.count) && text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
    }

    /// How many parts a file of a size has.
    package static func partCount(of size: UInt64) -> Int {
        max(1, Int((size + UInt64(partSize) - 1) / UInt64(partSize)))
    }

    /// How many plaintext bytes a part has.
    package func size(ofPart number: Int) -> Int {
        Int(min(size - UInt64(number) * UInt64(Self.partSize), UInt64(Self.partSize)))
    }

    private var bytes: [UInt8] {
        var bytes: [UInt8] = [Self.form]
        bytes.append(bigEndian: size)
        bytes += digest + key
        bytes.append(field: Array(name.utf8))
        bytes.append(field: Array(type.utf8))
        bytes.append(UInt8(truncatingIfNeeded: parts.count >> 8))
        bytes.append(UInt8(truncatingIfNeeded: parts.count))
        for part in parts {
            bytes.append(UInt8(part.utf8.count))
            bytes += Array(part.utf8)
        }
        return bytes
    }

    /// The text of the message.
    package var text: String { Base64.text(bytes) }

    /// Reads ``text``.
    ///
    /// - Throws: ``EnvelopeError``
    package init(_ text: String) throws(EnvelopeError) {
        guard text.utf8.count <= ChatContent.textLimit, let bytes = Base64.decode(text.utf8) else { throw .malformed }
        var cursor = ByteCursor(bytes)
        func string(_ bytes: [UInt8]) throws(EnvelopeError) -> String {
            guard let text = String(validating: bytes, as: UTF8.self) else { throw .malformed }
            return text
        }
        let form = try cursor.byte()
        guard form == Self.form else { throw .unsupportedVersion(form) }
        size = try cursor.uint64()
        digest = try cursor.take(Self.digestSize)
        key = try cursor.take(Self.keySize)
        name = try string(try cursor.field())
        type = try string(try cursor.field())
        parts = []
        for _ in 0..<(try cursor.uint16()) { parts.append(try string(try cursor.take(Int(try cursor.byte())))) }
        guard cursor.isAtEnd, size <= Self.sizeLimit, isValid else { throw .malformed }
    }
}

/// The chunks of one file under its key, in their order.
private struct ChunkSequence {
    private let key: SymmetricKey
    private var number: UInt32 = 0
    private var digest = SHA256()

    init(_ key: [UInt8]) { self.key = SymmetricKey(data: key) }

    private mutating func nextNonce(isLast: Bool) throws -> ChaChaPoly.Nonce {
        var nonce = [UInt8](repeating: 0, count: 7)
        nonce.append(bigEndian: number)
        nonce.append(isLast ? 1 : 0)
        number += 1
        return try ChaChaPoly.Nonce(data: nonce)
    }

    mutating func seal(_ chunk: ArraySlice<UInt8>, isLast: Bool) throws -> [UInt8] {
        let box = try ChaChaPoly.seal(chunk, using: key, nonce: nextNonce(isLast: isLast))
        let sealed = Array(box.ciphertext) + Array(box.tag)
        digest.update(data: sealed)
        return sealed
    }

    mutating func open(_ sealed: ArraySlice<UInt8>, isLast: Bool) throws -> [UInt8] {
        digest.update(data: sealed)
        let box = try ChaChaPoly.SealedBox(
            nonce: nextNonce(isLast: isLast), ciphertext: sealed.dropLast(FileReference.tagSize),
            tag: sealed.suffix(FileReference.tagSize))
        return Array(try ChaChaPoly.open(box, using: key))
    }

    var result: [UInt8] { Array(digest.finalize()) }
}

/// Seals a file, part by part.
package struct FileSealer {
    private let size: UInt64
    private var sealed: UInt64 = 0
    private var chunks: ChunkSequence

    /// - Parameters:
    ///   - key: 32 random bytes, for this file only.
    ///   - size: at most ``FileReference/sizeLimit``.
    package init(key: [UInt8], size: UInt64) { (self.size, chunks) = (size, ChunkSequence(key)) }

    /// Seals the next part: ``FileReference/partSize`` bytes, or the rest of the file.
    ///
    /// - Throws: ``EnvelopeError/malformed`` if it has another length.
    package mutating func seal(_ part: [UInt8]) throws -> [UInt8] {
        guard part.count == Int(min(size - sealed, UInt64(FileReference.partSize))) else {
            throw EnvelopeError.malformed
        }
        sealed += UInt64(part.count)
        var output: [UInt8] = []
        var rest = part[...]
        repeat {
            let chunk = rest.prefix(FileReference.chunkSize)
            rest = rest.dropFirst(FileReference.chunkSize)
            output += try chunks.seal(chunk, isLast: rest.isEmpty && sealed == size)
        } while !rest.isEmpty
        return output
    }

    /// The digest, after the last part.
    package var digest: [UInt8] { chunks.result }
}

/// Opens a file, part by part. What it returns must not be used before ``isComplete`` is true.
package struct FileOpener {
    private let reference: FileReference
    private var next = 0
    private var chunks: ChunkSequence

    package init(_ reference: FileReference) { (self.reference, chunks) = (reference, ChunkSequence(reference.key)) }

    /// Opens the next part.
    ///
    /// - Throws: an error if it is not that part of this file.
    package mutating func open(_ part: [UInt8]) throws -> [UInt8] {
        guard next < reference.parts.count else { throw EnvelopeError.malformed }
        let size = reference.size(ofPart: next)
        let count = max(1, (size + FileReference.chunkSize - 1) / FileReference.chunkSize)
        guard part.count == size + count * FileReference.tagSize else { throw EnvelopeError.malformed }
        next += 1
        var output: [UInt8] = []
        var rest = part[...]
        for number in 1...count {
            let sealed = rest.prefix(FileReference.chunkSize + FileReference.tagSize)
            rest = rest.dropFirst(FileReference.chunkSize + FileReference.tagSize)
            output += try chunks.open(sealed, isLast: number == count && next == reference.parts.count)
        }
        return output
    }

    /// Whether all parts were opened, and are those that the message has named.
    package var isComplete: Bool { next == reference.parts.count && chunks.result == reference.digest }
}
