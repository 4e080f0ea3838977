// Writing heads and chunks. RFC 9112.

package import NIOCore

extension ByteBuffer {
    /// Writes a request's head unchanged, with the version HTTP/1.1.
    package mutating func write(_ head: RequestHead) {
        FieldText.write(head.method, to: &self)
        writeInteger(UInt8(ascii: " "))
        FieldText.write(head.target, to: &self)
        writeStaticString(" HTTP/1.1\r\n")
        write(head.headers)
        writeStaticString("\r\n")
    }

    /// Writes a response's head unchanged. A status outside of 100...999 is clamped.
    package mutating func write(_ head: ResponseHead, minorVersion: Int = 1) {
        writeStaticString(minorVersion == 0 ? "HTTP/1.0 " : "HTTP/1.1 ")
        let status = min(max(head.status, 100), 999)
        writeMultipleIntegers(
            UInt8(0x30 + status / 100), UInt8(0x30 + status / 10 % 10), UInt8(0x30 + status % 10), UInt8(ascii: " "))
        FieldText.write(head.reason, to: &self)
        writeStaticString("\r\n")
        write(head.headers)
        writeStaticString("\r\n")
    }

    private mutating func write(_ fields: HeaderFields) {
        for field in fields.fields {
            FieldText.write(field.name, to: &self)
            writeStaticString(": ")
            FieldText.write(field.value, to: &self)
            writeStaticString("\r\n")
        }
    }

    /// Writes the line before a chunk of `count` bytes. The caller writes CR LF after the chunk.
    package mutating func writeChunkLine(_ count: Int) {
        writeString(String(count, radix: 16))
        writeStaticString("\r\n")
    }

    /// Writes the last chunk and the trailers.
    package mutating func writeLastChunk(_ trailers: HeaderFields) {
        writeStaticString("0\r\n")
        write(trailers)
        writeStaticString("\r\n")
    }
}
