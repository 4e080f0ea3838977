// Names that differ in case only. Some programs take them for one name: `encoding/json` of Go folds names, as Unicode folds
// single characters, and reads the last of them.

extension JSONDocument {
    /// Whether an object on a path has a member whose name differs from that of the path in case only.
    ///
    /// Names in conditions count as steps. The rest of a path behind a step to several values is not followed.
    ///
    /// - Parameter start: the value that the path starts at; nil for the whole document.
    package func hasLookalike(of path: JSONPath, from start: JSONPlace? = nil) -> Bool {
        withTable { table in
            var place = start ?? root
            for step in path.steps {
                switch step {
                case .member(let name):
                    guard !table.hasLookalike(of: name, in: place) else { return true }
                    guard let next = table.member(name, of: place) else { return false }
                    place = next
                case .element(let index):
                    guard table.entry(place).kind == .array,
                        let next = table.children(of: place).dropFirst(index).first(where: { _ in true })
                    else { return false }
                    place = next
                case .condition(let conditions):
                    guard table.entry(place).kind == .object else { return false }
                    for condition in conditions {
                        var object: JSONPlace? = place
                        for name in condition.names {
                            guard let next = object else { break }
                            guard !table.hasLookalike(of: name, in: next) else { return true }
                            object = table.member(name, of: next)
                        }
                    }
                case .everyMember, .everyElement: return false
                }
            }
            return false
        }
    }
}

extension JSONTable {
    /// Whether an object has a member whose name differs from `name` in case only.
    fileprivate func hasLookalike(of name: JSONName, in object: JSONPlace) -> Bool {
        guard entry(object).kind == .object else { return false }
        // At most, an escape of six bytes stands for each byte of the name.
        let lengths = name.bytes.count...max(1, 6 * name.bytes.count)
        for place in children(of: object) {
            let other = entries[Int(place.index) - 1]
            guard lengths.contains(other.range.count - 2), !hasText(name.bytes, other) else { continue }
            if Self.folded(text(other)).elementsEqual(Self.folded(name.bytes)) { return true }
        }
        return false
    }

    /// A name with ASCII letters in lower case. U+017F and U+212A are the only other characters that fold to ASCII.
    private static func folded(_ name: some Sequence<UInt8>) -> [UInt8] {
        var folded: [UInt8] = []
        for byte in name {
            folded.append(UInt8(ascii: "A")...UInt8(ascii: "Z") ~= byte ? byte | 0x20 : byte)
            if folded.suffix(2) == [0xC5, 0xBF] {
                folded.replaceSubrange((folded.count - 2)..., with: [UInt8(ascii: "s")])
            } else if folded.suffix(3) == [0xE2, 0x84, 0xAA] {
                folded.replaceSubrange((folded.count - 3)..., with: [UInt8(ascii: "k")])
            }
        }
        return folded
    }
}
