// Header fields as they came: order and case of the names are the sender's, because what is passed on has to look the
// same. RFC 9110 section 5.

/// The fields of a request or an answer, in order.
package struct HeaderFields: Equatable, Sendable {
    /// One field line.
    package struct Field: Equatable, Sendable {
        package var name: String
        package var value: String

        package init(_ name: String, _ value: String) { (self.name, self.value) = (name, value) }

        /// Whether its value is text, and not bytes that stand for something else.
        package var isText: Bool { FieldText.isText(value) }
    }

    package var fields: [Field]

    package init(_ fields: [Field] = []) { self.fields = fields }

    /// The values of all lines with this name, case ignored.
    package subscript(_ name: String) -> [String] {
        fields.compactMap { Self.areAlike($0.name, name) ? $0.value : nil }
    }

    /// The value of the first line with this name; nothing where there is none.
    package func first(_ name: String) -> String? {
        fields.first { Self.areAlike($0.name, name) }?.value
    }

    package mutating func add(_ name: String, _ value: String) { fields.append(Field(name, value)) }

    /// Puts one line in the place of all lines with this name.
    package mutating func set(_ name: String, to value: String) {
        if let index = fields.firstIndex(where: { Self.areAlike($0.name, name) }) {
            fields[index].value = value
            let rest = fields[(index + 1)...].filter { !Self.areAlike($0.name, name) }
            fields.replaceSubrange((index + 1)..., with: rest)
        } else {
            add(name, value)
        }
    }

    package mutating func remove(_ name: String) { fields.removeAll { Self.areAlike($0.name, name) } }

    /// The members of a list field, over all of its lines, in lower case: `Connection: close, X-A`. Section 5.6.1.
    package func tokens(_ name: String) -> [String] {
        self[name].flatMap { value in
            value.split(separator: ",").map { member in
                String(member.drop { $0 == " " || $0 == "\t" }).lowercased().trimmedEnd
            }
        }
    }

    /// The same, with underscores that count as hyphens: behind CGI-like interfaces both are one field.
    package static func areOneBehindCGI(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count
            && zip(left.utf8, right.utf8).allSatisfy {
                ($0 == 0x5F ? 0x2D : $0 | 0x20) == ($1 == 0x5F ? 0x2D : $1 | 0x20)
            }
    }

    static func areAlike(_ left: String, _ right: String) -> Bool {
        left.utf8.count == right.utf8.count
            && zip(left.utf8, right.utf8).allSatisfy { $0 == $1 || ($0 | 0x20 == $1 | 0x20 && ($0 | 0x20) >= 0x61) }
    }
}

extension HeaderFields: ExpressibleByDictionaryLiteral {
    package init(dictionaryLiteral elements: (String, String)...) {
        self.init(elements.map { Field($0.0, $0.1) })
    }
}

extension String {
    fileprivate var trimmedEnd: String {
        var text = Substring(self)
        while let last = text.last, last == " " || last == "\t" { text.removeLast() }
        return String(text)
    }
}
