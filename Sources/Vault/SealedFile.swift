// Files of people, sealed chunk by chunk for the backend: the STREAM construction over AES-256-GCM. Hoang, Reyhanitabar,
// Rogaway and Vizár, "Online Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance", 2015, section 7.
//
// The backend names a file after it has received it, so no file is bound to its place: the backend may answer with another
// file of this vault, whole. It cannot alter, shorten, extend or reorder one.

import Crypto
package import Envelope
package import StorePort

/// The form of a sealed file.
///
///     words (91 B) | version 1 (1 B) | id of the key (8 B) | prefix (7 B) | description (512 B + tag) | chunk... | chunk
///
/// The words are for people who read the file without the gateway, and the mark by which it is recognised. Up to the
/// prefix it is the header, which is associated data of all chunks. Each chunk is sealed under the file's key, with the
/// nonce `prefix (7 B) | number (4 B) | whether it is the last (1 B)`. The description is chunk 0. The others have 64 KiB
/// of the file each, the last one the rest; an empty file has one empty chunk. Numbers are big-endian, tags have 16 bytes.
///
/// Several files of one form have one key. Their prefixes differ in the last byte, the number of the file in the form.
package enum SealedFile {
    /// The beginning of every sealed file.
    package static let words = Array(
        "?PAWL-FILE This file is encrypted. Sign in through your organisation's gateway to read it.\n".utf8)
    package static let version: UInt8 = 1
    /// Ours: plaintext bytes of a chunk. Memory of a transfer, and the least that a range opens; a tag of 16 bytes is 0.02 %.
    package static let chunkSize = 64 << 10
    static let tagSize = 16
    static let prefixSize = 7
    package static let keySize = 32
    static let sealedChunkSize = chunkSize + tagSize
    package static let headerSize = words.count + 1 + 8 + prefixSize
    /// Bytes before the first chunk of the file: header and description.
    package static let beginningSize = headerSize + Description.size + tagSize
    /// Ours: the largest file, in bytes: a terabyte, less than the number of a chunk can count.
    package static let sizeLimit = 1 << 40

    /// Whether bytes begin as a sealed file does. If they are fewer than the words, no.
    package static func isSealed(_ bytes: UnsafeRawBufferPointer) -> Bool { bytes.starts(with: words) }

    /// The sealed size of a file; nil if it is larger than ``sizeLimit``.
    package static func sealedSize(of size: Int) -> Int? {
        guard (0...sizeLimit).contains(size) else { return nil }
        return beginningSize + size + tagSize * max(1, (size + chunkSize - 1) / chunkSize)
    }

    /// The size of a file by its sealed size; nil if no file has this sealed size.
    package static func size(ofSealed sealed: Int) -> Int? {
        let chunks = sealed - beginningSize
        guard chunks >= tagSize, chunks <= 2 * sizeLimit else { return nil }
        let count = (chunks + sealedChunkSize - 1) / sealedChunkSize
        let size = chunks - count * tagSize
        return size >= 0 && sealedSize(of: size) == sealed ? size : nil
    }

    /// The readable beginning of a file, by which its key is found.
    package struct Header: Sendable, Equatable {
        /// Names the key, as a message id names that of a message.
        package let key: MessageID
        package let bytes: [UInt8]

        package init(key: MessageID, prefix: [UInt8]) {
            precondition(prefix.count == prefixSize, "a prefix has seven bytes")
            self.key = key
            var bytes = words + [version]
            bytes.append(bigEndian: key.value)
            self.bytes = bytes + prefix
        }

        /// Reads a header.
        ///
        /// - Parameter bytes: the beginning of the file, at least ``headerSize`` bytes.
        package init(_ bytes: [UInt8]) throws(EnvelopeError) {
            guard bytes.starts(with: words) else { throw .malformed }
            var cursor = ByteCursor(Array(bytes.dropFirst(words.count)))
            let version = try cursor.byte()
            guard version == SealedFile.version else { throw .unsupportedVersion(version) }
            key = MessageID(try cursor.uint64())
            _ = try cursor.take(prefixSize)
            self.bytes = Array(bytes.prefix(headerSize))
        }

        /// Finds the row of the key, as the digest of an envelope does.
        package var digest: EnvelopeDigest { EnvelopeDigest(of: bytes) }
        /// The header of another file of the same form.
        package func file(_ number: UInt8) -> Header {
            Header(key: key, prefix: Array(prefix.dropLast()) + [number])
        }
        fileprivate var prefix: ArraySlice<UInt8> { bytes.suffix(prefixSize) }
    }

    /// What the sender's client says about a file. Sealed with it, in a size that discloses nothing.
    package struct Description: Sendable, Equatable {
        /// Bytes with padding.
        static let size = 512
        /// Ours: bytes of a media type; longer ones are not kept.
        package static let typeLimit = 127
        /// Ours: bytes of a name, as file systems have it; longer ones are not kept.
        package static let nameLimit = 255

        /// The media type, printable ASCII; nil if none is known.
        package let type: String?
        /// The name in UTF-8, without control characters; nil if none is known.
        package let name: String?

        package init(type: String? = nil, name: String? = nil) {
            self.type = type.flatMap { type in
                let isUsable = (1...Self.typeLimit).contains(type.utf8.count)
                return isUsable && type.utf8.allSatisfy { 0x20...0x7E ~= $0 } ? type : nil
            }
            self.name = name.flatMap { name in
                let isUsable = (1...Self.nameLimit).contains(name.utf8.count)
                return isUsable && name.unicodeScalars.allSatisfy { $0.properties.generalCategory != .control }
                    ? name : nil
            }
        }

        fileprivate var bytes: [UInt8] {
            var bytes: [UInt8] = []
            bytes.append(field: Array((type ?? "").utf8))
            bytes.append(field: Array((name ?? "").utf8))
            return bytes + [UInt8](repeating: 0, count: Self.size - bytes.count)
        }

        fileprivate init(_ bytes: [UInt8]) throws(EnvelopeError) {
            var cursor = ByteCursor(bytes)
            self.init(
                type: String(validating: try cursor.field(), as: UTF8.self),
                name: String(validating: try cursor.field(), as: UTF8.self))
        }
    }

    /// The key of a file, and what names it.
    package struct Key: Sendable {
        package let header: Header
        let key: ContentKey

        package init(_ header: Header, _ key: ContentKey) { (self.header, self.key) = (header, key) }

        /// The key of another file of the same form.
        package func file(_ number: UInt8) -> Key { Key(header.file(number), key) }
    }

    /// Seals and opens single chunks.
    private struct Cipher {
        private let key: SymmetricKey
        private let header: Header

        init(_ key: Key) {
            header = key.header
            self.key = key.key.withBytes { SymmetricKey(data: $0) }
        }

        private func nonce(_ number: UInt32, _ isLast: Bool) throws -> AES.GCM.Nonce {
            var nonce = Array(header.prefix)
            nonce.append(bigEndian: number)
            nonce.append(isLast ? 1 : 0)
            return try AES.GCM.Nonce(data: nonce)
        }

        func seal(_ chunk: ArraySlice<UInt8>, _ number: UInt32, isLast: Bool, into output: inout [UInt8]) throws {
            let box = try AES.GCM.seal(
                chunk, using: key, nonce: nonce(number, isLast), authenticating: header.bytes)
            output.append(contentsOf: box.ciphertext)
            output.append(contentsOf: box.tag)
        }

        func open(_ sealed: ArraySlice<UInt8>, _ number: UInt32, isLast: Bool) throws -> [UInt8] {
            guard sealed.count >= tagSize else { throw EnvelopeError.malformed }
            let box = try AES.GCM.SealedBox(
                nonce: nonce(number, isLast), ciphertext: sealed.dropLast(tagSize), tag: sealed.suffix(tagSize))
            return Array(try AES.GCM.open(box, using: key, authenticating: header.bytes))
        }
    }

    // MARK: Sealing

    /// Seals one file as it comes. Holds at most one chunk.
    package struct Sealer: Sendable {
        private let cipher: Cipher
        private let header: Header
        private let description: Description
        private var waiting: [UInt8] = []
        private var number: UInt32 = 0

        package init(_ key: Key, _ description: Description) {
            (cipher, header, self.description) = (Cipher(key), key.header, description)
        }

        /// Appends what precedes the file, once and first.
        package mutating func begin(into output: inout [UInt8]) throws {
            precondition(number == 0, "a file begins once")
            output += header.bytes
            try cipher.seal(description.bytes[...], 0, isLast: false, into: &output)
            number = 1
        }

        /// Seals the next bytes of the file, and appends the chunks that are complete.
        ///
        /// - Throws: ``EnvelopeError/malformed`` if the file is larger than ``sizeLimit``.
        package mutating func seal(_ bytes: UnsafeRawBufferPointer, into output: inout [UInt8]) throws {
            var rest = UnsafeRawBufferPointer(rebasing: bytes[...])
            while !rest.isEmpty {
                if waiting.count == chunkSize { try seal(isLast: false, into: &output) }
                let count = min(chunkSize - waiting.count, rest.count)
                waiting.append(contentsOf: rest[..<count])
                rest = UnsafeRawBufferPointer(rebasing: rest[count...])
            }
        }

        /// Appends the last chunk.
        package mutating func end(into output: inout [UInt8]) throws { try seal(isLast: true, into: &output) }

        private mutating func seal(isLast: Bool, into output: inout [UInt8]) throws {
            guard Int(number) <= sizeLimit / chunkSize else { throw EnvelopeError.malformed }
            try cipher.seal(waiting[...], number, isLast: isLast, into: &output)
            waiting.removeAll(keepingCapacity: true)
            number += 1
        }
    }

    // MARK: Opening

    /// Opens one file, or a range of it, as it comes. Holds at most one chunk and the piece that came last.
    package struct Opener: Sendable {
        private let cipher: Cipher
        /// Sealed bytes to skip: the beginning, and chunks before the range.
        private var skipped: Int
        private var waiting: [UInt8] = []
        private var number: UInt32
        /// Bytes of the first opened chunk that are before the range.
        private var before: Int
        /// Bytes of the range that are not opened yet; nil if the whole file is opened.
        private var remaining: Int?

        /// - Parameter range: the bytes of the file to open, not empty; nil for all.
        package init(_ key: Key, range: Range<Int>? = nil) {
            cipher = Cipher(key)
            let first = (range?.lowerBound ?? 0) / chunkSize
            skipped = beginningSize + first * sealedChunkSize
            number = UInt32(first) + 1
            before = (range?.lowerBound ?? 0) % chunkSize
            remaining = range?.count
        }

        /// Opens the description.
        ///
        /// - Parameter beginning: the first ``beginningSize`` bytes of the file.
        /// - Throws: an error if the key is not that of the file, or the beginning was altered.
        package func description(in beginning: [UInt8]) throws -> Description {
            guard beginning.count >= beginningSize else { throw EnvelopeError.malformed }
            return try Description(cipher.open(beginning[headerSize..<beginningSize], 0, isLast: false))
        }

        /// Whether the range is complete. No more of the file is needed.
        package var isComplete: Bool { remaining == 0 }

        /// Takes the next sealed bytes, from the first byte of the sealed file on, and appends what they open.
        ///
        /// - Throws: an error if a chunk was altered or is in another place.
        package mutating func open(_ bytes: UnsafeRawBufferPointer, into output: inout [UInt8]) throws {
            let count = min(skipped, bytes.count)
            skipped -= count
            guard !isComplete else { return }
            waiting.append(contentsOf: bytes[count...])
            // A chunk before others is not the last, so it is opened when there is a byte after it.
            var position = 0
            defer { waiting.removeFirst(position) }
            while waiting.count - position > sealedChunkSize, !isComplete {
                let sealed = waiting[position..<position + sealedChunkSize]
                try append(cipher.open(sealed, number, isLast: false), to: &output)
                position += sealedChunkSize
                number += 1
                guard Int(number) <= sizeLimit / chunkSize + 1 else { throw EnvelopeError.malformed }
            }
        }

        /// Opens the last chunk, when all sealed bytes were taken.
        ///
        /// - Throws: an error if the file was shortened, or its last chunk altered.
        package mutating func end(into output: inout [UInt8]) throws {
            guard !isComplete else { return }
            guard skipped == 0 else { throw EnvelopeError.malformed }
            try append(cipher.open(waiting[...], number, isLast: true), to: &output)
            waiting = []
            guard remaining ?? 0 == 0 else { throw EnvelopeError.malformed }
        }

        private mutating func append(_ chunk: [UInt8], to output: inout [UInt8]) {
            let wanted = chunk.dropFirst(before).prefix(remaining ?? .max)
            before = 0
            if let remaining { self.remaining = remaining - wanted.count }
            output.append(contentsOf: wanted)
        }
    }
}
