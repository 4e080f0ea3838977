// Paths to values in a backend's documents (a text, a sender, an id), as written in a mapping:
//
//     path       = [ "$" ] first *step           "$" alone is the whole document
//     first      = name / "*" / bracket          after "$": as step
//     step       = "." name / "." "*" / bracket
//     bracket    = "[" ( number / "*" / quoted / "?" condition *( "&&" condition ) ) "]"
//     condition  = [ "@." ] name *( "." name ) [ ( "==" / "!=" ) literal ]
//     literal    = quoted / number / "true" / "false" / "null"
//     name       = quoted / 1*( anything but white space and . [ ] ( ) { } " ' ? * = ! < > & | , \ )
//     quoted     = DQUOTE ... DQUOTE / "'" ... "'"     with \\ and the quote itself behind a backslash
//
//     content.body
//     events[*].content.body
//     messages[0].text
//     rooms.join.*.timeline.events[?type == "m.room.message"].content.body
//     content."m.relates_to".event_id

/// A parsed path, to be followed in many documents.
///
/// `*` matches every member of an object, `[*]` every element of an array; neither matches the other, so that a mapping
/// states which one it means. A condition selects the elements of an array that satisfy it. For an object it tests the
/// object itself; a mapping for WebSocket frames uses that to state the kind of frame.
package struct JSONPath: Hashable, Sendable {
    enum Step: Hashable, Sendable {
        case member(JSONName)
        case everyMember
        case element(Int)
        case everyElement
        case condition([JSONCondition])
    }

    /// A reference, because paths are passed on with each message.
    private final class Parts: Sendable {
        let text: String
        let steps: [Step]
        let positions: [Int]
        let hasMembersOnly: Bool

        init(_ text: String, _ steps: [Step], _ positions: [Int]) {
            (self.text, self.steps, self.positions) = (text, steps, positions)
            hasMembersOnly = steps.allSatisfy { step in
                if case .member = step { true } else { false }
            }
        }
    }

    private let parts: Parts

    /// The path as written.
    package var text: String { parts.text }
    var steps: [Step] { parts.steps }
    /// Whether each step names a member.
    var hasMembersOnly: Bool { parts.hasMembersOnly }
    /// The offset of each step in ``text``, in Unicode scalars.
    var positions: [Int] { parts.positions }

    /// Ours: Unicode scalars of a path.
    package static let lengthLimit = 1024
    /// Ours: steps of a path, and names in a condition. Following a path needs at most one stack frame for each step.
    package static let stepLimit = 32
    /// Ours: the upper bound of indices, exclusive.
    package static let indexLimit = 1_000_000
    /// Ours: values that one path may match in one document.
    package static let placeLimit = 1 << 16

    /// Parses a path.
    ///
    /// - Throws: ``JSONPathError``, with a reason in words and a position.
    package init(_ text: String) throws(JSONPathError) {
        var parser = JSONPathParser(text)
        try parser.parse()
        parts = Parts(text, parser.steps, parser.positions)
    }

    package static func == (left: Self, right: Self) -> Bool {
        left.parts === right.parts
            || left.text == right.text && left.steps == right.steps && left.positions == right.positions
    }

    package func hash(into hasher: inout Hasher) { hasher.combine(text) }

    /// Whether the path can match more than one value.
    package var isPlural: Bool {
        steps.contains { step in
            switch step {
            case .everyMember, .everyElement, .condition: true
            case .member, .element: false
            }
        }
    }
}

/// One test of a condition.
struct JSONCondition: Hashable, Sendable {
    enum Test: Hashable, Sendable {
        case exists
        case equals(JSONLiteral)
        /// Also satisfied if there is no such value.
        case differs(JSONLiteral)
    }

    let names: [JSONName]
    let test: Test
}

/// A value to compare with.
enum JSONLiteral: Hashable, Sendable {
    case string([UInt8])
    case number(JSONDecimal)
    case boolean(Bool)
    case null
}

/// Why a text is not a path. The author of the mapping is at fault.
package struct JSONPathError: Error, Equatable, Sendable {
    package let path: String
    /// The offset of the error in the path, in Unicode scalars.
    package let position: Int
    /// The error and its remedy, in words.
    package let reason: String

    /// The path with a mark under the error and the reason beside it, for a terminal.
    package var pointed: String {
        path + "\n" + String(repeating: " ", count: position) + "^ " + reason
    }
}

extension JSONPathError: CustomStringConvertible {
    package var description: String {
        let rest = String(String.UnicodeScalarView(path.unicodeScalars.dropFirst(position).prefix(16)))
        let place = rest.isEmpty ? "at its end" : "at character \(position + 1), \"\(rest)\""
        return "the path \(path) is wrong \(place): \(reason)"
    }
}
