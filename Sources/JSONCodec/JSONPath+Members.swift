extension JSONPath {
    /// The names that it follows, where it follows nothing but members: then something can be put where it leads, even
    /// where there is nothing yet. Empty for `$`.
    package var memberNames: [String]? {
        var names: [String] = []
        for step in steps {
            guard case .member(let name) = step else { return nil }
            names.append(String(decoding: name.bytes, as: UTF8.self))
        }
        return names
    }
}
