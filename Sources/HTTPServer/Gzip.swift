// Compression of answers to clients. RFC 1951, RFC 1952.
//
// An answer holds texts that the gateway has opened, beside names, ids and plain texts that an attacker can choose. A
// network observer sees the length of an answer. If an attacker's text repeats a part of a secret, the two together
// compress better, and the length discloses the part (CRIME, BREACH). So the opened texts are stored and not compressed,
// and nothing else refers to them: the length depends on their lengths alone, as without compression.
//
//     gzip header │ deflate blocks of the public bytes │ stored blocks of a hidden part │ deflate blocks … │ CRC, length
//
// zlib never gets a hidden part. It gets as many zero bytes as history, so that its distances are those of the receiver.
// No public byte is zero, because JSON has no control characters, so no match includes a hidden byte.
//
// Not NIOHTTPCompression: its compressor is internal, and a handler for NIO's own types of messages.

import CZlib
package import NIOCore

package enum Gzip {
    /// The level that nginx uses by default: most of the gain, at the lowest cost.
    private static let level: Int32 = 1
    /// Maximum bytes of a stored block. RFC 1951 section 3.2.4.
    private static let blockLimit = 0xFFFF
    /// Distances reach so far back. RFC 1951 section 2.
    private static let history = 32 << 10

    /// Compresses a body.
    ///
    /// - Parameter hidden: parts whose content must not affect the length; in order, not overlapping.
    /// - Returns: nil if it would not be shorter, or if it has zero bytes outside the hidden parts.
    package static func compress(_ body: ByteBuffer, hiding hidden: [Range<Int>]) -> ByteBuffer? {
        var stream = z_stream()
        guard pawl_deflate_begin(&stream, level) == Z_OK else { return nil }
        defer { deflateEnd(&stream) }
        var output = ByteBuffer()
        output.reserveCapacity(body.readableBytes / 4 + 64)
        output.writeBytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF])
        let isDone = body.withUnsafeReadableBytes { bytes in
            var position = 0
            for part in hidden where !part.isEmpty {
                guard part.lowerBound >= position, part.upperBound <= bytes.count,
                    deflated(bytes[position..<part.lowerBound], &stream, &output),
                    store(bytes[part], &stream, &output)
                else { return false }
                position = part.upperBound
            }
            guard deflated(bytes[position...], &stream, &output) else { return false }
            // The last block, empty.
            output.writeBytes([1, 0, 0, 0xFF, 0xFF])
            output.writeInteger(checksum(bytes), endianness: .little)
            output.writeInteger(UInt32(truncatingIfNeeded: bytes.count), endianness: .little)
            return true
        }
        return isDone && output.readableBytes < body.readableBytes ? output : nil
    }

    /// Compresses public bytes, up to the end of a byte.
    private static func deflated(
        _ bytes: Slice<UnsafeRawBufferPointer>, _ stream: inout z_stream, _ output: inout ByteBuffer
    ) -> Bool {
        guard !bytes.isEmpty else { return true }
        guard !bytes.contains(0) else { return false }
        let bytes = UnsafeRawBufferPointer(rebasing: bytes)
        // zlib only reads them.
        stream.next_in = UnsafeMutablePointer(mutating: bytes.bindMemory(to: UInt8.self).baseAddress)
        stream.avail_in = UInt32(bytes.count)
        repeat {
            var isSound = true
            output.writeWithUnsafeMutableBytes(minimumWritableBytes: max(bytes.count / 4, 1024)) { room in
                stream.next_out = room.bindMemory(to: UInt8.self).baseAddress
                stream.avail_out = UInt32(room.count)
                isSound = deflate(&stream, Z_SYNC_FLUSH) != Z_STREAM_ERROR
                return room.count - Int(stream.avail_out)
            }
            guard isSound else { return false }
        } while stream.avail_out == 0
        return stream.avail_in == 0
    }

    /// Writes hidden bytes as they are, and zero bytes into zlib's history.
    private static func store(
        _ bytes: Slice<UnsafeRawBufferPointer>, _ stream: inout z_stream, _ output: inout ByteBuffer
    ) -> Bool {
        var rest = bytes
        while !rest.isEmpty {
            let block = rest.prefix(blockLimit)
            output.writeInteger(UInt8(0))
            output.writeInteger(UInt16(block.count), endianness: .little)
            output.writeInteger(~UInt16(block.count), endianness: .little)
            output.writeBytes(UnsafeRawBufferPointer(rebasing: block))
            rest = rest.dropFirst(blockLimit)
        }
        let zeros = [UInt8](repeating: 0, count: min(bytes.count, history))
        return deflateSetDictionary(&stream, zeros, UInt32(zeros.count)) == Z_OK
    }

    private static func checksum(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
        var sum = crc32(0, nil, 0)
        var rest = bytes[...]
        while !rest.isEmpty {
            // The function takes 32-bit lengths.
            let part = UnsafeRawBufferPointer(rebasing: rest.prefix(1 << 30))
            sum = crc32(sum, part.bindMemory(to: UInt8.self).baseAddress, UInt32(part.count))
            rest = rest.dropFirst(1 << 30)
        }
        return UInt32(sum)
    }
}
