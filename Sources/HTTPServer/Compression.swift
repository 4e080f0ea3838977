// When answers are compressed, and what their head then says. RFC 9110 sections 8.4, 8.8.3, 12.5.3 and 12.5.5.

package import HTTPCodec
import NIOCore
import NIOPosix

/// The compression of an answer that can be compressed.
package struct Compression {
    /// Ours: maximum body that is compressed on the event loop, in bytes. A hundred short messages take two milliseconds.
    static let sizeAtOnce = 16 << 10

    /// Nil if the answer is never compressed, whatever the client accepts.
    ///
    /// - Parameter limit: bodies above this size are compressed, in bytes; 0 for none.
    package init?(_ head: ResponseHead, _ size: Int, above limit: Int) {
        guard limit > 0, size > limit, (200..<300).contains(head.status), !head.hasNoBody,
            // A range of the unchanged bytes.
            head.status != 206, head.headers.first("Content-Range") == nil,
            head.headers.tokens("Content-Encoding").allSatisfy({ $0 == "identity" }),
            !head.headers.tokens("Cache-Control").contains("no-transform")
        else { return nil }
    }

    /// Returns the head of an answer whose form depends on what the client accepts.
    package func selected(_ head: ResponseHead) -> ResponseHead {
        var head = head
        let varies = head.headers.tokens("Vary")
        if !varies.contains("*"), !varies.contains("accept-encoding") { head.headers.add("Vary", "Accept-Encoding") }
        return head
    }

    /// Returns the head of the compressed answer. Another client's answer has the same entity tag and other bytes, so the
    /// tag becomes a weak one.
    package static func compressed(_ head: ResponseHead) -> ResponseHead {
        var head = head
        head.headers.set("Content-Encoding", to: "gzip")
        for name in ["Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"] {
            head.headers.remove(name)
        }
        if let tag = head.headers.first("ETag"), tag.hasPrefix("\"") { head.headers.set("ETag", to: "W/" + tag) }
        return head
    }

    /// Compresses a large body on another thread, and calls back on the event loop.
    func compress(
        _ body: ByteBuffer, hiding hidden: [Range<Int>], on eventLoop: any EventLoop,
        _ done: @escaping (ByteBuffer?) -> Void
    ) {
        NIOThreadPool.singleton.runIfActive(eventLoop: eventLoop) { Gzip.compress(body, hiding: hidden) }
            .assumeIsolated().whenComplete { done((try? $0.get()) ?? nil) }
    }
}

extension HeaderFields {
    /// Whether a client accepts gzip, and does not prefer bodies without an encoding.
    package var acceptsGzip: Bool {
        var weights: [Substring: Double] = [:]
        for member in tokens("Accept-Encoding") {
            let parts = member.split(separator: ";")
            guard let name = parts.first?.trimmed else { continue }
            let weight = parts.dropFirst().lazy.map(\.trimmed).first { $0.hasPrefix("q=") }.map { $0.dropFirst(2) }
            // A weight that is none is no consent.
            weights[name] = weight.map { Double($0) ?? 0 } ?? 1
        }
        let gzip = weights["gzip"] ?? weights["x-gzip"] ?? weights["*"] ?? 0
        return gzip > 0 && gzip >= weights["identity"] ?? 0
    }
}

extension Substring {
    fileprivate var trimmed: Substring {
        var text = drop { $0 == " " || $0 == "\t" }
        while let last = text.last, last == " " || last == "\t" { text.removeLast() }
        return text
    }
}
