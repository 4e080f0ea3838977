/// Why a path cannot be followed in a document. The author of the document is at fault.
package enum JSONMatchError: Error, Equatable, Sendable {
    /// An object on the path has two members with the same name, so it is unknown which of them other programs read.
    /// With the object's offset in bytes.
    case duplicateNames(at: Int)
    /// More than ``JSONPath/placeLimit``, or than the limit that the caller set.
    case tooManyPlaces
}

extension JSONDocument {
    /// All values that a path matches, in document order, none of them inside another.
    ///
    /// The time is bounded by the size of the document times the number of steps.
    ///
    /// - Parameter start: the value that the path starts at; nil for the whole document.
    package func places(
        _ path: JSONPath, from start: JSONPlace? = nil, limit: Int = JSONPath.placeLimit
    ) throws(JSONMatchError) -> [JSONPlace] {
        try match(path, from: start, limit: limit).places
    }

    /// All values that a path matches, and those at which it ends early because their kind is wrong.
    ///
    /// Only values that may hold texts are among the latter: for instance a string where the path names a member of an
    /// object.
    package func search(
        _ path: JSONPath, from start: JSONPlace? = nil, limit: Int = JSONPath.placeLimit
    ) throws(JSONMatchError) -> (places: [JSONPlace], ofWrongKind: [JSONPlace]) {
        let found = try match(path, from: start, limit: limit)
        return (found.places, found.ofWrongKind.filter(mayHoldText))
    }

    /// Whether a value may hold texts: an array or object that is not empty, or a string that is not blank.
    package func mayHoldText(_ place: JSONPlace) -> Bool { entries[Int(place.index)].mayHoldText && !isBlank(place) }

    /// The value that a path matches; nil if there is none.
    ///
    /// - Throws: ``JSONMatchError/tooManyPlaces`` if there are several: a sender or an id that occurs twice is
    ///   ambiguous.
    package func place(_ path: JSONPath, from start: JSONPlace? = nil) throws(JSONMatchError) -> JSONPlace? {
        guard path.hasMembersOnly else { return try match(path, from: start, limit: 1).places.first }
        // Most paths are such, and find one value at most, for which no list is needed.
        let result = withTable { table -> Result<JSONPlace?, JSONMatchError> in
            var place = start ?? root
            for step in path.steps {
                guard case .member(let name) = step else { return .success(nil) }
                let entry = table.entry(place)
                guard !entry.hasDuplicateNames else { return .failure(.duplicateNames(at: entry.range.lowerBound)) }
                guard let next = table.member(name, of: place) else { return .success(nil) }
                place = next
            }
            return .success(place)
        }
        return try result.get()
    }

    /// Describes the path's matches in words, for an operator who tests a mapping. Contains names and positions, no
    /// values.
    ///
    /// - Parameter start: the value that the path starts at; nil for the whole document.
    package func explanation(of path: JSONPath, from start: JSONPlace? = nil) -> String {
        do throws(JSONMatchError) {
            let result = try match(path, from: start, limit: JSONPath.placeLimit)
            guard result.places.isEmpty else {
                let kinds = result.places.prefix(3).map { "\(kind($0).words) at byte \(range($0).lowerBound)" }
                let more = result.places.count > 3 ? " and \(result.places.count - 3) more" : ""
                return "\(path.text) finds " + kinds.joined(separator: ", ") + more
            }
            guard let (step, place) = result.furthest else { return "\(path.text) finds nothing" }
            let end = step + 1 < path.positions.count ? path.positions[step + 1] : path.text.unicodeScalars.count
            let scalars = Array(path.text.unicodeScalars)[path.positions[step]..<end]
            let words = String(String.UnicodeScalarView(scalars))
            return "\(path.text) finds nothing: \(words) (character \(path.positions[step] + 1)) is not there, "
                + "the value before it is \(kind(place).words) at byte \(range(place).lowerBound)"
        } catch {
            return switch error {
            case .duplicateNames(let offset):
                "\(path.text) cannot be followed: the object at byte \(offset) has two members with the same name"
            case .tooManyPlaces: "\(path.text) finds more than \(JSONPath.placeLimit) places"
            }
        }
    }

    private func match(
        _ path: JSONPath, from start: JSONPlace? = nil, limit: Int
    ) throws(JSONMatchError) -> JSONMatcher {
        let result = withTable { table -> Result<JSONMatcher, JSONMatchError> in
            var matcher = JSONMatcher(path.steps, limit)
            do throws(JSONMatchError) {
                try matcher.follow(0, from: start ?? root, in: table)
                return .success(matcher)
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }
}

/// Follows a path. It recurses once for each step that branches, so ``JSONPath/stepLimit`` bounds the recursion,
/// however deep the document is.
struct JSONMatcher {
    private let steps: [JSONPath.Step]
    private let limit: Int
    private(set) var places: [JSONPlace] = []
    /// The first value at which a step matched nothing, of those that the most steps led to.
    private(set) var furthest: (step: Int, place: JSONPlace)?
    /// The values that may hold texts and at which a step requires another kind.
    private(set) var ofWrongKind: [JSONPlace] = []

    init(_ steps: [JSONPath.Step], _ limit: Int) {
        self.steps = steps
        self.limit = limit
    }

    mutating func follow(_ first: Int, from start: JSONPlace, in table: JSONTable) throws(JSONMatchError) {
        var place = start
        for step in first..<steps.count {
            let entry = table.entry(place)
            var next: JSONPlace?
            switch steps[step] {
            case .member(let name):
                try refuseDuplicates(entry)
                next = table.member(name, of: place)
            case .element(let index):
                if entry.kind == .array, index < entry.count {
                    next = table.children(of: place).dropFirst(index).first { _ in true }
                }
            case .everyMember where entry.kind == .object, .everyElement where entry.kind == .array:
                try refuseDuplicates(entry)
                for child in table.children(of: place) { try follow(step + 1, from: child, in: table) }
                return
            case .condition(let conditions) where entry.kind == .array:
                for child in table.children(of: place) {
                    if try satisfies(conditions, child, table) { try follow(step + 1, from: child, in: table) }
                    try require(.object, child, table)
                }
                return
            case .condition(let conditions):
                next = try satisfies(conditions, place, table) ? place : nil
            case .everyMember, .everyElement: break
            }
            guard let next else {
                try require(steps[step].kind, place, table)
                if step > furthest?.step ?? -1 { furthest = (step, place) }
                return
            }
            place = next
        }
        guard places.count < limit else { throw .tooManyPlaces }
        places.append(place)
    }

    /// Notes a value of another kind.
    private mutating func require(
        _ kind: JSONEntry.Kind, _ place: JSONPlace, _ table: JSONTable
    ) throws(JSONMatchError) {
        let entry = table.entry(place)
        guard entry.kind != kind, entry.mayHoldText else { return }
        guard ofWrongKind.count < JSONPath.placeLimit else { throw .tooManyPlaces }
        ofWrongKind.append(place)
    }

    private func refuseDuplicates(_ entry: JSONEntry) throws(JSONMatchError) {
        guard !entry.hasDuplicateNames else { throw .duplicateNames(at: entry.range.lowerBound) }
    }

    private func satisfies(
        _ conditions: [JSONCondition], _ start: JSONPlace, _ table: JSONTable
    ) throws(JSONMatchError) -> Bool {
        guard table.entry(start).kind == .object else { return false }
        for condition in conditions {
            var found: JSONPlace? = start
            for name in condition.names {
                guard let place = found else { break }
                try refuseDuplicates(table.entry(place))
                found = table.member(name, of: place)
            }
            let holds =
                switch condition.test {
                case .exists: found != nil
                case .equals(let literal): found.map { table.equals($0, literal) } ?? false
                case .differs(let literal): found.map { !table.equals($0, literal) } ?? true
                }
            guard holds else { return false }
        }
        return true
    }
}

extension JSONPath.Step {
    /// The kind of the values that it can be followed in.
    fileprivate var kind: JSONEntry.Kind {
        switch self {
        case .member, .everyMember, .condition: .object
        case .element, .everyElement: .array
        }
    }
}

extension JSONTable {
    fileprivate func equals(_ place: JSONPlace, _ literal: JSONLiteral) -> Bool {
        let entry = entry(place)
        switch (literal, entry.kind) {
        case (.string(let bytes), .string): return hasText(bytes, entry)
        case (.number(let number), .number): return JSONDecimal(bytes[entry.range]) == number
        case (.boolean(let value), .true): return value
        case (.boolean(let value), .false): return !value
        case (.null, .null): return true
        default: return false
        }
    }
}
