import Foundation
import TestThreads
import Testing

/// `Tests/FINDINGS.md` names the test of each finding; a test that is renamed or removed must not leave a row behind.
@Suite(.blocking) struct FindingsTests {
    /// The rows of the page: the cells between the bars.
    static func rows() throws -> [[String]] {
        let page = try String(contentsOf: TidyTests.root.appending(path: "Tests/FINDINGS.md"), encoding: .utf8)
        return page.split(separator: "\n").filter { $0.hasPrefix("|") && !$0.hasPrefix("|--") }
            .map { $0.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) } }
            .filter { $0.first != "finding" }
    }

    @Test func everyRowHasAState() throws {
        let rows = try Self.rows()
        #expect(rows.count > 100)
        for row in rows { #expect(row.count == 3 && !row[2].isEmpty, "\(row)") }
        let names = rows.map { $0[0] }
        #expect(Set(names).count == names.count, "a finding stands twice")
    }

    /// A test stands in back quotes as `Suite.test`.
    @Test func theTestsOfTheRowsExist() throws {
        let files = TidyTests.files("Tests")
        let reference = /`([A-Z]\w*Tests?)\.(\w+)`/
        var count = 0
        for row in try Self.rows() {
            for match in row[2].matches(of: reference) {
                count += 1
                let isThere = files.contains { file in
                    ["struct", "extension", "class"].contains { TidyTests.has(file.text, "\($0) \(match.1)") }
                }
                let hasTest = files.contains { TidyTests.has($0.text, "func \(match.2)(") }
                #expect(isThere && hasTest, "\(row[0]) names \(match.1).\(match.2), which is not there")
            }
        }
        #expect(count > 60)
    }
}
