// Where in a backend's documents a text, a sender, an id stands, as an operator writes it in a mapping:
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

/// A path that has been read once, to be followed in many documents.
///
/// `*` takes every member of an object, `[*]` every element of an array; neither takes the other, so that a mapping says
/// which of them it means. A condition takes the elements of an array that satisfy it; on an object it asks that object
/// itself, which is how a mapping for WebSocket frames says what kind of frame it is for.
package struct JSONPath: Hashable, Sendable {
    enum Step: Hashable, Sendable {
        case member(JSONName)
        case everyMember
        case element(Int)
        case everyElement
        case condition([JSONCondition])
    }

    /// As it was written.
    package let text: String
    let steps: [Step]
    /// Where each step stands in ``text``, in Unicode scalars.
    let positions: [Int]

    /// Ours: Unicode scalars of a path.
    package static let lengthLimit = 1024
    /// Ours: steps of a path, and names in a condition. Following a path takes a stack frame a step.
    package static let stepLimit = 32
    /// Ours: indices are below this.
    package static let indexLimit = 1_000_000
    /// Ours: places that one path may lead to in one document.
    package static let placeLimit = 1 << 16

    /// Reads a path.
    ///
    /// - Throws: ``JSONPathError``, in words, with the place.
    package init(_ text: String) throws(JSONPathError) {
        var parser = JSONPathParser(text)
        try parser.parse()
        self.text = text
        steps = parser.steps
        positions = parser.positions
    }

    /// Whether it can lead to more than one place.
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
        /// Satisfied as well where there is no such value.
        case differs(JSONLiteral)
    }

    let names: [JSONName]
    let test: Test
}

/// What a value is compared with.
enum JSONLiteral: Hashable, Sendable {
    case string([UInt8])
    case number(JSONDecimal)
    case boolean(Bool)
    case null
}

/// Why a text is no path. The fault of whoever wrote the mapping.
package struct JSONPathError: Error, Equatable, Sendable {
    package let path: String
    /// Where, in Unicode scalars from the beginning of the path.
    package let position: Int
    /// What is wrong and what to write, in words.
    package let reason: String

    /// The path with a mark under the place and the reason beside it, for a terminal.
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
