/// The path of a route: `/rooms/{conversation}/send/m.room.message/{local_id}`. A name in braces takes one segment, `**` at
/// the end takes all that follows. Segments are compared percent-decoded.
package struct PathPattern: Hashable, Sendable {
    package enum Segment: Hashable, Sendable {
        case literal(String)
        case capture(String)
        case rest
    }

    package let text: String
    package let segments: [Segment]

    package init(text: String, segments: [Segment]) { (self.text, self.segments) = (text, segments) }
}
