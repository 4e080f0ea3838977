import Foundation
import Testing

/// `README.md` names the test of each defect and each feature; a test that is renamed must not leave a row behind.
@Suite struct PageTests {
    @Test func theTestsOfThePageExist() throws {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        let page = try String(contentsOf: folder.appending(path: "README.md"), encoding: .utf8)
        let names = FileManager.default.enumerator(atPath: folder.path)?.compactMap { $0 as? String } ?? []
        let texts = try names.filter { $0.hasSuffix(".swift") }
            .map { try String(contentsOf: folder.appending(path: $0), encoding: .utf8) }
        let references = page.matches(of: /`([A-Z]\w*Tests)\.(\w+)`/)
        #expect(references.count > 35)
        for reference in references where reference.2 != "swift" {
            let isThere = texts.contains {
                $0.contains("struct \(reference.1)") && $0.contains("func \(reference.2)(")
            }
            #expect(isThere, "\(reference.0) is not there")
        }
    }
}
