/// The path to an endpoint, appended to the host. It may name entities that have no remote identifier yet.
///
///     let path: APIRequestPath = "/messages/\(reference)/reactions"
public struct APIRequestPath: Hashable, Sendable {
    /// A part of a path.
    public enum Segment: Hashable, Sendable {
        /// As it is to stand on the wire; what may not stand in a path is percent-encoded.
        case text(String)
        /// An entity's remote identifier, percent-encoded whole, its slashes as well.
        case reference(EntityReference)
        /// Exactly as it is to stand on the wire, a query as well where there is one: nothing in it is encoded or looked at.
        case raw(String)
    }

    /// The parts, in their order.
    public let segments: [Segment]

    /// Texts that stand side by side are joined, and empty ones left out.
    public init(_ segments: [Segment]) {
        // Two texts side by side are one, so that equal paths have equal forms.
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

    /// A request target (RFC 9112 section 3.2.1) that is percent-encoded already, path and query, such as a proxy is given.
    public static func raw(_ target: String) -> APIRequestPath { APIRequestPath([.raw(target)]) }

    /// Whether some of it goes out as it is.
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
    /// Takes texts and references.
    public struct StringInterpolation: StringInterpolationProtocol {
        fileprivate var segments: [Segment] = []

        /// Begins with nothing.
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
