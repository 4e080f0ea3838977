// Bytes across the C interface. Owned buffers free themselves, so the two sides need no common allocator.

package import CTransports
package import Foundation

extension Data {
    /// Lends the bytes for the time of a call.
    package func lend<Value>(_ body: (pawl_bytes) -> Value) -> Value {
        withUnsafeBytes { bytes in
            body(pawl_bytes(data: bytes.bindMemory(to: UInt8.self).baseAddress, count: bytes.count))
        }
    }
}

extension String {
    /// Lends the text as UTF-8 with a count; it may contain NUL.
    package func lend<Value>(_ body: (pawl_bytes) -> Value) -> Value { Data(utf8).lend(body) }
}

extension pawl_bytes {
    /// A copy; nil if there is a count and no pointer.
    package var copy: Data? {
        guard count > 0 else { return Data() }
        guard let data, count <= Int.max else { return nil }
        return Data(bytes: data, count: Int(count))
    }
}

extension pawl_buffer {
    /// A buffer without bytes, which has nothing to free.
    package static var empty: pawl_buffer { pawl_buffer(data: nil, count: 0, owner: nil, free: nil) }

    /// A copy of the bytes in memory of this process's C library.
    package init(copying bytes: Data) {
        guard !bytes.isEmpty else {
            self = .empty
            return
        }
        let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: bytes.count)
        bytes.copyBytes(to: memory, count: bytes.count)
        self.init(data: UnsafePointer(memory), count: bytes.count, owner: memory) { owner, _, _ in
            owner?.assumingMemoryBound(to: UInt8.self).deallocate()
        }
    }

    /// Copies the bytes and frees the buffer.
    ///
    /// - Returns: nil if there are more bytes than the limit, or a count and no pointer. The buffer is freed anyway.
    package consuming func take(limit: Int) -> Data? {
        defer { free?(owner, data, count) }
        guard count <= limit else { return nil }
        return pawl_bytes(data: data, count: count).copy
    }
}

extension pawl_error {
    /// An error in C form.
    package init(_ error: TesseractError) {
        self.init(code: error.code, reason: pawl_buffer(copying: Data(error.reason.utf8)))
    }

    /// Reads code and reason and frees the reason.
    package consuming func take(limit: Int) -> (code: Int32, reason: String) {
        let reason = reason.take(limit: limit).map { String(decoding: $0, as: UTF8.self) }
        return (code, reason ?? "the reason cannot be read")
    }

    /// The error that is there before a call.
    package static var none: pawl_error { pawl_error(code: Int32(PAWL_OK), reason: .empty) }
}

extension pawl_outcome {
    /// A result in C form.
    package init(_ reply: Reply) {
        switch reply {
        case .success(let data):
            self.init(code: Int32(PAWL_OK), payload: pawl_buffer(copying: data), reason: .empty)
        case .failure(let error):
            self.init(
                code: error.code, payload: .empty, reason: pawl_buffer(copying: Data(error.reason.utf8)))
        }
    }

    /// Reads the result and frees both buffers.
    package consuming func take(limit: Int) -> Reply {
        let payload = payload.take(limit: limit)
        let reason = reason.take(limit: limit).map { String(decoding: $0, as: UTF8.self) }
        guard code == PAWL_OK else {
            return .failure(TesseractError(code: code, reason: reason ?? "the reason cannot be read"))
        }
        guard let payload else {
            return .failure(.tooLarge(reason: "a message has more than \(limit) bytes, or cannot be read"))
        }
        return .success(payload)
    }
}
