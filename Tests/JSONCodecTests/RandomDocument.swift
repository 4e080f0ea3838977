import TestKit

@testable import JSONCodec

/// Valid documents by chance, in every spelling that RFC 8259 allows.
struct RandomDocument {
    var chance: SeededGenerator
    /// Whether objects may name members alike, and strings hold half a surrogate pair.
    var isOdd = false

    /// Seven of eight are an array or object.
    mutating func text(depth: Int = 4) -> String {
        let isScalar = Int.random(in: 0..<8, using: &chance) == 0
        let root = isScalar ? value(0) : Bool.random(using: &chance) ? object(depth) : array(depth)
        return space() + root + space()
    }

    private mutating func one(_ pieces: [String]) -> String { pieces.randomElement(using: &chance) ?? "" }

    private mutating func space() -> String { one(["", "", "", " ", "\n", "\t\r\n", "   "]) }

    private mutating func value(_ depth: Int) -> String {
        switch Int.random(in: 0..<(depth > 0 ? 9 : 5), using: &chance) {
        case 0: one(["true", "false", "null"])
        case 1: one(["0", "-0", "1", "-12", "1.50", "1e5", "2E-07", "-0.0e+0", "123456789012345678901234567890"])
        case 2, 3, 4: string()
        case 5, 6: array(depth)
        default: object(depth)
        }
    }

    private mutating func string() -> String {
        let pieces = [
            "a", "B", " ", "é", "😀", #"\n"#, #"\""#, #"\\"#, #"\/"#, #"\u0041"#, #"\u00e9"#, #"\ud83d\ude00"#, "[", "{",
        ]
        let odd = isOdd ? [#"\ud83d"#, #"\uDE00"#, #"\u0000"#] : []
        return "\"" + (0..<Int.random(in: 0..<12, using: &chance)).map { _ in one(pieces + odd) }.joined() + "\""
    }

    private mutating func array(_ depth: Int) -> String {
        let elements = (0..<Int.random(in: 0..<5, using: &chance)).map { _ in space() + value(depth - 1) + space() }
        return "[" + (elements.isEmpty ? space() : elements.joined(separator: ",")) + "]"
    }

    private mutating func object(_ depth: Int) -> String {
        var members: [String] = []
        for index in 0..<Int.random(in: 0..<6, using: &chance) {
            let name = isOdd && Bool.random(using: &chance) ? string() : "\"m\(index)\(one(["", "é", #"\u0041"#]))\""
            members.append(space() + name + space() + ":" + space() + value(depth - 1) + space())
        }
        return "{" + (members.isEmpty ? space() : members.joined(separator: ",")) + "}"
    }
}
