/// The path to an endpoint, appended to the host. It may name entities that have no remote identifier yet.
///
///     let path: APIRequestPath = "/messages/\(reference)/reactions"
public struct APIRequestPath: Hashable, Sendable {
    /// A part of a path.
    public enum Segment: Hashable, Sendable {
        /// Sent as it is; characters that a path may not have are percent-encoded.
        case text(String)
        /// The remote identifier of an entity, fully percent-encoded, slashes included.
        case reference(EntityReference)
        /// Sent unchanged, with a query if it has one. It must be visible ASCII without `#`, or the request is refused.
        case raw(String)
    }

    /// The parts, in their order.
    public let segments: [Segment]

    /// A path from its parts. Adjacent texts are joined, and empty ones are left out.
    public init(_ segments: [Segment]) {
        // Adjacent texts become one, so that equal paths have equal forms.
        self.segments = segments.reduce(into: []) { output, segment in
            if case .text(let more) = segment {
                guard !more.isEmpty else { return }
                if case .text(let before) = output.last {
                    output[output.count - 1] = .text(before + more)
                    return
                }
            }
            output.append(segment)
        }
    }

    /// A request target that is already percent-encoded, path and query, as a proxy gets it (RFC 9112 section 3.2.1).
    public static func raw(_ target: String) -> APIRequestPath { APIRequestPath([.raw(target)]) }

    /// Whether a part of it is raw.
    var isRaw: Bool {
        segments.contains { segment in
            if case .raw = segment { return true }
            return false
        }
    }

    /// The entities that it names, in their order.
    public var references: [EntityReference] {
        segments.compactMap { segment in
            if case .reference(let reference) = segment { return reference }
            return nil
        }
    }
}

extension APIRequestPath: ExpressibleByStringInterpolation {
    /// Collects texts and references.
    public struct StringInterpolation: StringInterpolationProtocol {
        fileprivate var segments: [Segment] = []

        /// An empty path.
        public init(literalCapacity: Int, interpolationCount: Int) {}
        /// Adds a text.
        public mutating func appendLiteral(_ literal: String) { segments.append(.text(literal)) }
        /// Adds a reference.
        public mutating func appendInterpolation(_ reference: EntityReference) {
            segments.append(.reference(reference))
        }
        /// Adds a text.
        public mutating func appendInterpolation(_ text: some CustomStringConvertible) {
            segments.append(.text(text.description))
        }
    }

    /// From a literal without references.
    public init(stringLiteral value: String) { self.init([.text(value)]) }
    /// From a literal with references in it.
    public init(stringInterpolation: StringInterpolation) { self.init(stringInterpolation.segments) }
}

/// For logs: references are named by their type and local identifier.
extension APIRequestPath: CustomStringConvertible {
    /// For people and logs.
    public var description: String {
        segments.map { segment in
            switch segment {
            case .text(let text), .raw(let text): text
            case .reference(let reference): ":\(reference)"
            }
        }.joined()
    }
}
