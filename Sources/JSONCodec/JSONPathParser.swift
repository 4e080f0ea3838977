/// Parses a path; JSONPath.swift has the grammar.
struct JSONPathParser {
    private let text: String
    private let scalars: [Unicode.Scalar]
    private var position = 0
    private(set) var steps: [JSONPath.Step] = []
    private(set) var positions: [Int] = []

    private static let reserved = Set(".[](){}\"'?*=!<>&|,\\".unicodeScalars)

    init(_ text: String) {
        self.text = text
        scalars = Array(text.unicodeScalars)
    }

    mutating func parse() throws(JSONPathError) {
        guard scalars.count <= JSONPath.lengthLimit else {
            throw failure("a path has at most \(JSONPath.lengthLimit) characters", at: JSONPath.lengthLimit)
        }
        guard !scalars.isEmpty else { throw failure("the path is empty; write $ for the whole document") }
        var needsDot = false
        if scalars[0] == "$", scalars.count == 1 || scalars[1] == "." || scalars[1] == "[" {
            position = 1
            needsDot = true
        }
        if scalars[0] == "." { throw failure("a path begins with a name, without a dot") }
        while let next = peek {
            let start = position
            guard steps.count < JSONPath.stepLimit else {
                throw failure("a path has at most \(JSONPath.stepLimit) steps")
            }
            positions.append(start)
            if next == "[" {
                steps.append(try bracket())
            } else {
                if needsDot {
                    guard take(".") else {
                        throw failure("a dot precedes a name; put a name with such a character in quotes")
                    }
                    if peek == "." { throw failure("two dots: write every step, there is no search at any depth") }
                    if peek == "[" { throw failure("no dot before a bracket") }
                }
                steps.append(try memberStep())
            }
            needsDot = true
        }
    }

    private var peek: Unicode.Scalar? { position < scalars.count ? scalars[position] : nil }

    private mutating func take(_ scalar: Unicode.Scalar) -> Bool {
        guard peek == scalar else { return false }
        position += 1
        return true
    }

    private mutating func skipSpaces() {
        while take(" ") {}
    }

    private func failure(_ reason: String, at place: Int? = nil) -> JSONPathError {
        JSONPathError(path: text, position: place ?? position, reason: reason)
    }

    // MARK: Steps

    private mutating func memberStep() throws(JSONPathError) -> JSONPath.Step {
        if take("*") { return .everyMember }
        return .member(try name())
    }

    private mutating func name() throws(JSONPathError) -> JSONName {
        if peek == "\"" || peek == "'" { return JSONName(try quoted()) }
        let start = position
        while let next = peek, !Self.reserved.contains(next), !next.properties.isWhitespace, next.value >= 0x20 {
            position += 1
        }
        guard position > start else {
            guard let next = peek else { throw failure("a name is missing") }
            if next == "*" { throw failure("* stands alone between two dots, or in brackets for an array") }
            throw failure("a name is missing; put a name with \(Self.spelled(next)) in it in quotes")
        }
        return JSONName(Array(String(String.UnicodeScalarView(scalars[start..<position])).utf8))
    }

    private static func spelled(_ scalar: Unicode.Scalar) -> String {
        scalar.properties.isWhitespace ? "white space" : "\(scalar)"
    }

    private mutating func quoted() throws(JSONPathError) -> [UInt8] {
        let (start, quote) = (position, scalars[position])
        var content = String.UnicodeScalarView()
        position += 1
        while let next = peek {
            position += 1
            if next == quote { return Array(String(content).utf8) }
            guard next == "\\" else {
                content.append(next)
                continue
            }
            guard let escaped = peek, escaped == "\\" || escaped == quote else {
                throw failure("after a backslash comes a backslash or \(quote)", at: position - 1)
            }
            content.append(escaped)
            position += 1
        }
        throw failure("this \(quote) is not closed", at: start)
    }

    private mutating func bracket() throws(JSONPathError) -> JSONPath.Step {
        let start = position
        position += 1
        skipSpaces()
        let step: JSONPath.Step
        switch peek {
        case "*":
            position += 1
            step = .everyElement
        case "\"", "'": step = .member(JSONName(try quoted()))
        case "?":
            position += 1
            step = .condition(try conditions())
        case let next? where ("0"..."9") ~= next: step = .element(try index())
        case "-": throw failure("elements are counted from the front, from 0")
        case nil: throw failure("this [ is not closed", at: start)
        default: throw failure("brackets contain a number, *, a name in quotes, or ? and a condition")
        }
        skipSpaces()
        guard take("]") else {
            guard peek != nil else { throw failure("this [ is not closed", at: start) }
            throw failure("a ] is missing here")
        }
        return step
    }

    private mutating func index() throws(JSONPathError) -> Int {
        let start = position
        var value = 0
        while let next = peek, ("0"..."9") ~= next {
            value = value * 10 + Int(next.value) - 0x30
            guard value < JSONPath.indexLimit else {
                throw failure("an index is below \(JSONPath.indexLimit)", at: start)
            }
            position += 1
        }
        guard position == start + 1 || scalars[start] != "0" else {
            throw failure("a number has no leading zeros", at: start)
        }
        return value
    }

    // MARK: Conditions

    private mutating func conditions() throws(JSONPathError) -> [JSONCondition] {
        var conditions: [JSONCondition] = []
        repeat {
            guard conditions.count < JSONPath.stepLimit else {
                throw failure("a condition has at most \(JSONPath.stepLimit) parts")
            }
            conditions.append(try condition())
            skipSpaces()
            if peek == "|" { throw failure("there is no \"or\"; write one path for each case") }
        } while try takePair("&", "parts of a condition are joined by &&")
        return conditions
    }

    private mutating func condition() throws(JSONPathError) -> JSONCondition {
        skipSpaces()
        if peek == "(" { throw failure("write a condition without parentheses") }
        if peek == "!" { throw failure("there is no ! before a value; compare with !=") }
        if peek == "@", position + 1 < scalars.count, scalars[position + 1] == "." { position += 2 }
        var names: [JSONName] = []
        repeat {
            if peek == "*" { throw failure("a condition names one value; there is no * in it") }
            guard names.count < JSONPath.stepLimit else {
                throw failure("a condition has at most \(JSONPath.stepLimit) names")
            }
            names.append(try name())
        } while take(".")
        if peek == "[" { throw failure("a condition names members; there are no brackets in it") }
        skipSpaces()
        switch peek {
        case "=", "!":
            let isEqual = peek == "="
            position += 1
            guard take("=") else { throw failure("compare with == or !=") }
            skipSpaces()
            let literal = try literal()
            return JSONCondition(names: names, test: isEqual ? .equals(literal) : .differs(literal))
        case "<", ">": throw failure("compare with == or !=")
        default: return JSONCondition(names: names, test: .exists)
        }
    }

    private mutating func takePair(_ scalar: Unicode.Scalar, _ reason: String) throws(JSONPathError) -> Bool {
        guard take(scalar) else { return false }
        guard take(scalar) else { throw failure(reason) }
        return true
    }

    private mutating func literal() throws(JSONPathError) -> JSONLiteral {
        if peek == "\"" || peek == "'" { return .string(try quoted()) }
        let start = position
        while let next = peek, next != "]", next != " ", next != "&", next != "|" { position += 1 }
        let word = String(String.UnicodeScalarView(scalars[start..<position]))
        switch word {
        case "true": return .boolean(true)
        case "false": return .boolean(false)
        case "null": return .null
        default:
            guard let number = JSONFragment(number: word) else {
                throw failure("compare with a text in quotes, a number, true, false or null", at: start)
            }
            return .number(JSONDecimal(number.bytes))
        }
    }
}
