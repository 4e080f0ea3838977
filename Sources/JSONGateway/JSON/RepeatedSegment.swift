// The last segment of a path that stands in the body once more. Rocket.Chat calls the method that the body names, whatever
// method is in the path of the request.

package import HTTPCodec
package import JSONCodec
package import NIOCore

/// The place in a body that repeats the last segment of the path, and by which the backend goes.
package struct RepeatedSegment: Sendable, Equatable {
    package var path: JSONPath
    /// The strings in which the path continues; see ``MessageShape/Parts/parsed``.
    package var parsed: [JSONPath]

    package init(path: JSONPath, parsed: [JSONPath] = []) { (self.path, self.parsed) = (path, parsed) }

    /// Whether a body has the last segment of the path, and every program finds it there.
    ///
    /// A slash of the body is a colon in the path, where it would divide segments.
    ///
    /// - Parameter limits: those of the body.
    package func isSame(in body: ByteBuffer, of head: RequestHead, limits: JSONLimits = .standard) -> Bool {
        // A body may be JSON and a form at once.
        guard head.headers["Content-Type"].allSatisfy({ !$0.lowercased().contains("form") }),
            let segment = RequestPath(head.path)?.segments.last,
            let document = try? JSONDocument(body, limits: limits).parsing(parsed, limits: limits),
            let place = try? document.one(path), let text = try? document.text(place)
        else { return false }
        return text.utf8.elementsEqual(segment.utf8)
            || text.replacing("/", with: ":").utf8.elementsEqual(segment.utf8)
    }
}
